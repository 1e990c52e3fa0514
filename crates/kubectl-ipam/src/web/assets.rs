//! The files of the page.

/// Returns the content type and the content of a file of the page.
pub(super) fn find(path: &str) -> Option<(&'static str, &'static str)> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Some(match path {
        "/" => ("text/html; charset=utf-8", include_str!("page/index.html")),
        "/style.css" => ("text/css; charset=utf-8", include_str!("page/style.css")),
        "/icon.svg" => ("image/svg+xml", include_str!("page/icon.svg")),
        "/app.js" => (SCRIPT, include_str!("page/app.js")),
        "/dom.js" => (SCRIPT, include_str!("page/dom.js")),
        "/map.js" => (SCRIPT, include_str!("page/map.js")),
        "/overview.js" => (SCRIPT, include_str!("page/overview.js")),
        "/pool.js" => (SCRIPT, include_str!("page/pool.js")),
        "/lists.js" => (SCRIPT, include_str!("page/lists.js")),
        _ => return None,
    })
}

/// The response to the address with the token. It is a page that opens the other one: a redirect
/// would not send the cookie if a page of another origin contains the address, since the cookie is
/// `SameSite=Strict`.
pub(super) const ENTRY: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
    <meta http-equiv=\"refresh\" content=\"0; url=/\"><link rel=\"icon\" href=\"/icon.svg\"><title>kubectl ipam</title></head>\
    <body><a href=\"/\">Continue</a></body></html>";

#[cfg(test)]
mod tests {
    use super::*;

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
        for file in [
            "/app.js",
            "/dom.js",
            "/map.js",
            "/overview.js",
            "/pool.js",
            "/lists.js",
        ] {
            let (_, script) = find(file).unwrap();
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
