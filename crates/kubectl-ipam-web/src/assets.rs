//! The files of the page.

/// The scripts of the page, by their paths.
const SCRIPTS: [(&str, &str); 28] = [
    ("/address_map.js", include_str!("page/address_map.js")),
    ("/app.js", include_str!("page/app.js")),
    ("/banner.js", include_str!("page/banner.js")),
    ("/block_text.js", include_str!("page/block_text.js")),
    ("/blocks.js", include_str!("page/blocks.js")),
    ("/cell_panel.js", include_str!("page/cell_panel.js")),
    ("/clusters.js", include_str!("page/clusters.js")),
    ("/dom.js", include_str!("page/dom.js")),
    ("/findings.js", include_str!("page/findings.js")),
    ("/format.js", include_str!("page/format.js")),
    ("/map.js", include_str!("page/map.js")),
    ("/map_section.js", include_str!("page/map_section.js")),
    ("/map_window.js", include_str!("page/map_window.js")),
    ("/network.js", include_str!("page/network.js")),
    ("/occupancy.js", include_str!("page/occupancy.js")),
    ("/overview.js", include_str!("page/overview.js")),
    ("/pool.js", include_str!("page/pool.js")),
    ("/pool_table.js", include_str!("page/pool_table.js")),
    ("/pool_text.js", include_str!("page/pool_text.js")),
    ("/requests.js", include_str!("page/requests.js")),
    ("/route.js", include_str!("page/route.js")),
    ("/search.js", include_str!("page/search.js")),
    ("/search_text.js", include_str!("page/search_text.js")),
    ("/summary.js", include_str!("page/summary.js")),
    ("/tables.js", include_str!("page/tables.js")),
    ("/theme.js", include_str!("page/theme.js")),
    ("/waiting.js", include_str!("page/waiting.js")),
    ("/waiting_groups.js", include_str!("page/waiting_groups.js")),
];

/// Returns the content type and the content of a file of the page.
pub(crate) fn find(path: &str) -> Option<(&'static str, &'static str)> {
    match path {
        "/" => Some(("text/html; charset=utf-8", include_str!("page/index.html"))),
        "/style.css" => Some(("text/css; charset=utf-8", include_str!("page/style.css"))),
        "/icon.svg" => Some(("image/svg+xml", include_str!("page/icon.svg"))),
        script => {
            let (_, text) = SCRIPTS.iter().find(|(path, _)| *path == script)?;
            Some(("text/javascript; charset=utf-8", text))
        }
    }
}

/// The response to the address with the token. It is a page that opens the other one: a redirect
/// would not send the cookie if a page of another origin contains the address, since the cookie is
/// `SameSite=Strict`.
pub(crate) const ENTRY: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <meta http-equiv=\"refresh\" content=\"0; url=/\"><link rel=\"icon\" href=\"/icon.svg\"><title>kubectl ipam</title></head>\
    <body><a href=\"/\">Continue</a></body></html>";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scripts_are_served_and_checked() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "js") {
                let name = path.file_name().unwrap().to_str().unwrap();
                found.push(format!("/{name}"));
            }
        }
        found.sort();
        assert_eq!(found, SCRIPTS.map(|(path, _)| path));
        for (path, script) in SCRIPTS {
            assert!(script.starts_with("// @ts-check\n"), "{path}");
        }
    }

    #[test]
    fn page_has_no_inline_code_and_no_html_from_data() {
        let (_, html) = find("/").unwrap();
        for forbidden in [
            "<style", "style=", "onclick", "onload", "http:", "https:", "//",
        ] {
            assert!(!html.contains(forbidden), "index.html contains {forbidden}");
        }
        assert_eq!(
            html.matches("<script").count(),
            html.matches("<script type=\"module\" src=").count()
        );
        for (file, script) in SCRIPTS {
            for forbidden in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
            ] {
                assert!(!script.contains(forbidden), "{file} contains {forbidden}");
            }
        }
    }
}
