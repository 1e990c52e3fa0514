//! Which requests are answered: those of this user's browser, for the page itself.
//!
//! A page of another origin can send requests to 127.0.0.1 too, and can give its own name this
//! address (DNS rebinding). So each request needs the name or address of this server in `Host`, the
//! same origin, and a secret.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

/// The parameters of a request.
pub type Query = BTreeMap<String, String>;

/// A request that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The method is not GET.
    Method,
    /// The request is for another name than that of this server.
    Host,
    /// The request was caused by a page of another origin.
    Origin,
    /// The request has no secret.
    Secret,
}

impl Refusal {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
            Self::Secret => StatusCode::UNAUTHORIZED,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Method => "The page is read only: only GET is supported.\n",
            Self::Host => "This server answers to 127.0.0.1 and localhost only.\n",
            Self::Origin => "A page of another origin may not read this one.\n",
            Self::Secret => {
                "Open the address that kubectl ipam web has printed. It contains a secret.\n"
            }
        }
    }
}

/// What an answered request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// The first request: its address contains the token. The response sets the cookie.
    Entry,
    /// A request with the cookie.
    Session,
}

/// The secrets of one server.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    port: u16,
    /// The secret in the address.
    token: String,
    /// The secret in the cookie.
    session: String,
}

impl Guard {
    pub(crate) fn new(port: u16) -> Self {
        Self {
            port,
            token: secret(),
            session: secret(),
        }
    }

    /// The address that opens the page.
    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// The cookie of the page. Browsers send cookies to all ports of a host, so its name contains
    /// the port.
    pub(crate) fn cookie(&self) -> String {
        format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict",
            self.cookie_name(),
            self.session
        )
    }

    fn cookie_name(&self) -> String {
        format!("kubectl-ipam-{}", self.port)
    }

    /// Checks a request.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<Access, Refusal> {
        if *method != Method::GET {
            return Err(Refusal::Method);
        }
        let hosts = [
            format!("127.0.0.1:{}", self.port),
            format!("localhost:{}", self.port),
        ];
        let host = only(headers, header::HOST.as_str()).ok_or(Refusal::Host)?;
        if !hosts.iter().any(|own| host.eq_ignore_ascii_case(own)) {
            return Err(Refusal::Host);
        }
        let has_token = uri.path() == "/"
            && query(uri)
                .get("token")
                .is_some_and(|token| is_equal(token, &self.token));
        if headers.contains_key(header::ORIGIN) {
            let origin = only(headers, header::ORIGIN.as_str()).ok_or(Refusal::Origin)?;
            let origins = hosts.iter().map(|host| format!("http://{host}"));
            if !origins
                .into_iter()
                .any(|own| origin.eq_ignore_ascii_case(&own))
            {
                return Err(Refusal::Origin);
            }
        }
        // Browsers say which page caused a request. The address with the token may be opened from
        // anywhere.
        let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_own = site.is_none_or(|site| site == b"same-origin" || site == b"none");
        if !is_own && !has_token {
            return Err(Refusal::Origin);
        }
        if has_token {
            return Ok(Access::Entry);
        }
        if self.has_cookie(headers) {
            Ok(Access::Session)
        } else {
            Err(Refusal::Secret)
        }
    }

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie_name();
        let lines = headers
            .get_all(header::COOKIE)
            .into_iter()
            .filter_map(|line| line.to_str().ok());
        let mut pairs = lines
            .flat_map(|line| line.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(key, value)| key == name && is_equal(value, &self.session))
    }
}

/// The value of a header that is present once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// The parameters in an address.
pub(crate) fn query(uri: &Uri) -> Query {
    let text = uri.query().unwrap_or_default();
    form_urlencoded::parse(text.as_bytes())
        .into_owned()
        .collect()
}

/// Compares in a time that depends on the length only.
fn is_equal(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .fold(0, |differences, (a, b)| differences | (a ^ b))
            == 0
}

/// 192 random bits as hexadecimal digits.
fn secret() -> String {
    let (high, low): (u128, u64) = rand::random();
    format!("{high:032x}{low:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        guard: &Guard,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Access, Refusal> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        guard.check(&Method::GET, &path.parse().unwrap(), &map)
    }

    #[test]
    fn request_needs_host_origin_and_secret() {
        let guard = Guard::new(4711);
        let entry = guard.address().replace("http://127.0.0.1:4711", "");
        let cookie = format!("other=1; {}", guard.cookie().split(';').next().unwrap());
        let host = ("host", "127.0.0.1:4711");
        let session = ("cookie", cookie.as_str());
        assert_eq!(check(&guard, &entry, &[host]), Ok(Access::Entry));
        assert_eq!(
            check(&guard, &entry, &[host, ("sec-fetch-site", "cross-site")]),
            Ok(Access::Entry)
        );
        assert_eq!(
            check(&guard, "/api/search?q=a", &[host, session]),
            Ok(Access::Session)
        );
        assert_eq!(
            check(&guard, "/", &[("host", "localhost:4711"), session]),
            Ok(Access::Session)
        );
        let own = ("origin", "http://127.0.0.1:4711");
        assert_eq!(
            check(&guard, "/", &[host, session, own]),
            Ok(Access::Session)
        );

        for name in [
            "evil.example",
            "evil.example:4711",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.0.0.1:4711.evil.example",
            "",
        ] {
            assert_eq!(
                check(&guard, &entry, &[("host", name), session]),
                Err(Refusal::Host),
                "{name}"
            );
        }
        assert_eq!(check(&guard, "/", &[session]), Err(Refusal::Host));
        assert_eq!(
            check(&guard, "/", &[host, ("host", "evil.example"), session]),
            Err(Refusal::Host)
        );
        for name in [
            "http://evil.example",
            "null",
            "https://127.0.0.1:4711",
            "http://127.0.0.1:80",
            "http://127.0.0.1",
        ] {
            assert_eq!(
                check(&guard, &entry, &[host, session, ("origin", name)]),
                Err(Refusal::Origin),
                "{name}"
            );
        }
        for site in ["cross-site", "same-site", ""] {
            assert_eq!(
                check(&guard, "/", &[host, session, ("sec-fetch-site", site)]),
                Err(Refusal::Origin),
                "{site}"
            );
        }
        for path in [
            "/",
            "/?token=",
            "/?token=0000",
            "/events",
            &format!("/events{}", entry.trim_start_matches('/')),
        ] {
            assert_eq!(check(&guard, path, &[host]), Err(Refusal::Secret), "{path}");
        }
        assert_eq!(
            check(&guard, "/", &[host, ("cookie", "kubectl-ipam-4711=0")]),
            Err(Refusal::Secret)
        );
    }

    #[test]
    fn only_get_is_answered() {
        let guard = Guard::new(1);
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::HEAD,
            Method::OPTIONS,
        ] {
            let result = guard.check(&method, &"/".parse().unwrap(), &HeaderMap::new());
            assert_eq!(result, Err(Refusal::Method), "{method}");
        }
    }

    #[test]
    fn servers_have_different_secrets() {
        let (one, other) = (Guard::new(1), Guard::new(1));
        assert_ne!(one.token, other.token);
        assert_ne!(one.session, one.token);
        assert_eq!(one.session.len(), 48);
    }
}
