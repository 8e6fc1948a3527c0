//! Naming devices: `driver[:[//]path[?key=value[&key=value...]]]`.
//!
//! The grammar is IREE's, so that people who know `--device=amdgpu://0,1` know ours. The scheme picks the driver; what path and
//! parameters mean is the driver's business, but a driver must reject what it does not know ([`DeviceUri::check_params`]).
//! A repeated parameter or an empty name is an error; empty parameters (`?&a&`) are skipped, as in IREE.
//!
//! | URI | scheme | path | parameters |
//! |---|---|---|---|
//! | `mock` | `mock` | | |
//! | `mock:aie2p?devices=2` | `mock` | `aie2p` | `devices` = `2` |
//! | `xdna://0,1` | `xdna` | `0,1` | |
//!
//! `xdna:0`, `xdna:/0` and `xdna://0` are the same URI and compare equal; printing keeps the form that was read.

use crate::error::DriverError;
use std::ffi::OsString;
use std::fmt::{Display, Formatter};
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStringExt;
use std::str::FromStr;

/// Most parameters of one URI, as in IREE.
pub const MAX_PARAMS: usize = 128;

const EXAMPLE: &str =
    "expected `driver[:[//]path[?key=value[&key=value...]]]`, for example `xdna:0` or `mock:aie2p?devices=2`";

/// A parsed device URI.
#[derive(Debug, Clone)]
pub struct DeviceUri {
    scheme: String,
    /// What stood between scheme and path; only for printing.
    separator: &'static str,
    path: String,
    params: Vec<(String, String)>,
}

impl PartialEq for DeviceUri {
    fn eq(&self, other: &Self) -> bool {
        (&self.scheme, &self.path, &self.params) == (&other.scheme, &other.path, &other.params)
    }
}

impl Eq for DeviceUri {}

impl Hash for DeviceUri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.scheme, &self.path, &self.params).hash(state);
    }
}

impl Display for DeviceUri {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}{}", self.scheme, self.separator, self.path)?;
        for (index, (key, value)) in self.params.iter().enumerate() {
            let (before, equals) = (if index == 0 { '?' } else { '&' }, if value.is_empty() { "" } else { "=" });
            write!(f, "{before}{key}{equals}{value}")?;
        }
        Ok(())
    }
}

impl FromStr for DeviceUri {
    type Err = DriverError;

    fn from_str(text: &str) -> Result<Self, DriverError> {
        Self::parse(text)
    }
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_lowercase())
        && bytes.all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'+' | b'.'))
}

fn percent_decoded(value: &str) -> Result<OsString, String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        let byte = match (first, behind) {
            (b'%', [high, low, behind @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = behind;
                [high, low].iter().fold(0, |byte, digit| byte << 4 | (**digit as char).to_digit(16).unwrap_or(0) as u8)
            }
            (b'%', _) => {
                return Err(format!("`{value}` has a `%` without two hexadecimal digits; write `%25` for a `%`"));
            }
            (other, _) => *other,
        };
        if byte == 0 {
            return Err(format!("`{value}` has a zero byte"));
        }
        bytes.push(byte);
    }
    Ok(OsString::from_vec(bytes))
}

impl DeviceUri {
    /// Parses one URI. Surrounding white space is not part of it and rejected.
    ///
    /// # Errors
    /// [`DriverError::InvalidUri`] with the reason and an example of a valid one.
    pub fn parse(text: &str) -> Result<Self, DriverError> {
        let reject = |reason: String| DriverError::InvalidUri { uri: text.to_owned(), reason };
        if let Some(bad) = text.chars().find(|c| c.is_whitespace() || c.is_control()) {
            return Err(reject(format!("it contains {bad:?}; {EXAMPLE}")));
        }
        let (head, query) = text.split_once('?').map_or((text, None), |(head, query)| (head, Some(query)));
        let (scheme, rest) = head.split_once(':').map_or((head, None), |(scheme, rest)| (scheme, Some(rest)));
        if scheme.is_empty() {
            return Err(reject(format!("it has no scheme; {EXAMPLE}")));
        }
        if !is_scheme(scheme) {
            return Err(reject(format!("`{scheme}` is not a scheme (lower case letters and digits); {EXAMPLE}")));
        }
        let (separator, path) = match rest {
            None => ("", ""),
            Some(rest) => match rest.strip_prefix("//") {
                Some(path) => ("://", path),
                None => (":", rest.strip_prefix('/').unwrap_or(rest)),
            },
        };
        let mut params: Vec<(String, String)> = Vec::new();
        for param in query.unwrap_or_default().split('&').filter(|param| !param.is_empty()) {
            let (key, value) = param.split_once('=').unwrap_or((param, ""));
            if key.is_empty() {
                return Err(reject(format!(
                    "a parameter without a name in `?{}`; {EXAMPLE}",
                    query.unwrap_or_default()
                )));
            }
            if params.iter().any(|(known, _)| known == key) {
                return Err(reject(format!("parameter `{key}` is given twice; give it once")));
            }
            if params.len() == MAX_PARAMS {
                return Err(reject(format!("more than {MAX_PARAMS} parameters")));
            }
            params.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self { scheme: scheme.to_owned(), separator, path: path.to_owned(), params })
    }

    /// The driver's name.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands after `:`, `:/` or `://` and before `?`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The parameters in order, each name once. A parameter without `=` has an empty value.
    pub fn params(&self) -> &[(String, String)] {
        &self.params
    }

    /// The value of parameter `name`.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of parameter `name` with its percent-encoded bytes (`%2C` is a comma; RFC 3986, section 2.1) put in: for values
    /// that may have any byte, such as paths of files. `None` when it is not given.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] for a `%` without two hexadecimal digits behind it, and for a zero byte.
    pub fn decoded_param(&self, name: &str) -> Option<Result<OsString, DriverError>> {
        self.param(name).map(|value| percent_decoded(value).map_err(|reason| self.invalid_param(name, reason)))
    }

    /// This URI with another path, for instance to name one of several devices.
    ///
    /// # Errors
    /// [`DriverError::InvalidUri`] when `path` cannot be written in a URI.
    pub fn with_path(&self, path: &str) -> Result<Self, DriverError> {
        let separator = match self.separator {
            "" if path.is_empty() => "",
            // A path that starts with a slash needs the long form, or the slash would be read as part of the separator.
            _ if path.starts_with('/') => "://",
            "" => ":",
            other => other,
        };
        let changed = Self { path: path.to_owned(), separator, ..self.clone() };
        let parsed = Self::parse(&changed.to_string())?;
        if parsed == changed {
            Ok(parsed)
        } else {
            Err(DriverError::InvalidUri {
                uri: changed.to_string(),
                reason: format!("`{path}` cannot be a path, `?` starts the parameters"),
            })
        }
    }

    /// An error about parameter `name`, for drivers. `reason` says what is accepted.
    pub fn invalid_param(&self, name: &str, reason: impl Into<String>) -> DriverError {
        DriverError::InvalidParameter { uri: self.to_string(), name: name.to_owned(), reason: reason.into() }
    }

    /// Rejects parameters that are not in `known`. Every driver calls this, so that a typo does not become a default.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] naming the first unknown one and all known ones.
    pub fn check_params(&self, known: &[&str]) -> Result<(), DriverError> {
        match self.params.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) if known.is_empty() => {
                Err(self.invalid_param(key, format!("`{}` takes no parameters; remove it", self.scheme)))
            }
            Some((key, _)) => {
                Err(self.invalid_param(key, format!("unknown; `{}` takes: {}", self.scheme, known.join(", "))))
            }
        }
    }

    /// The value of parameter `name` as a `T`, `None` when it is not given. `accepted` completes "expected ..." in the error.
    ///
    /// # Errors
    /// [`DriverError::InvalidParameter`] when the value does not parse.
    pub fn typed_param<T: FromStr>(&self, name: &str, accepted: &str) -> Result<Option<T>, DriverError> {
        self.param(name)
            .map(|value| {
                let reason = || format!("`{value}` is not valid, expected {accepted}");
                value.parse().map_err(|_| self.invalid_param(name, reason()))
            })
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn parse(text: &str) -> DeviceUri {
        DeviceUri::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    // The table of IREE's URITest, as far as it holds valid URIs, then ours.
    #[rstest]
    #[case("s", "s", "", &[])]
    #[case("schema", "schema", "", &[])]
    #[case("schema:", "schema", "", &[])]
    #[case("schema:path", "schema", "path", &[])]
    #[case("schema:/", "schema", "", &[])]
    #[case("schema://", "schema", "", &[])]
    #[case("schema:///", "schema", "/", &[])]
    #[case("schema:///path", "schema", "/path", &[])]
    #[case("schema://path", "schema", "path", &[])]
    #[case("schema://path/", "schema", "path/", &[])]
    #[case("schema://path/sub", "schema", "path/sub", &[])]
    #[case("schema://path?", "schema", "path", &[])]
    #[case("schema://path?p", "schema", "path", &[("p", "")])]
    #[case("schema://path?params??", "schema", "path", &[("params??", "")])]
    #[case("s?&", "s", "", &[])]
    #[case("s?&a&", "s", "", &[("a", "")])]
    #[case("s?a=", "s", "", &[("a", "")])]
    #[case("s?a=b&c", "s", "", &[("a", "b"), ("c", "")])]
    #[case("s?a=b&c=d&e&f&g=h", "s", "", &[("a", "b"), ("c", "d"), ("e", ""), ("f", ""), ("g", "h")])]
    #[case("mock", "mock", "", &[])]
    #[case("mock?devices=2", "mock", "", &[("devices", "2")])]
    #[case("mock:aie2p/1?fault=alloc@3:x", "mock", "aie2p/1", &[("fault", "alloc@3:x")])]
    #[case("mock:aie2p?fault=a=b", "mock", "aie2p", &[("fault", "a=b")])]
    #[case("xdna:0", "xdna", "0", &[])]
    #[case("xdna://0,1", "xdna", "0,1", &[])]
    #[case("xdna://0000:c5:00.1", "xdna", "0000:c5:00.1", &[])]
    #[case("x-y_z+1.0:p", "x-y_z+1.0", "p", &[])]
    fn valid(#[case] text: &str, #[case] scheme: &str, #[case] path: &str, #[case] params: &[(&str, &str)]) {
        let uri = parse(text);
        let found: Vec<(&str, &str)> = uri.params().iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!((uri.scheme(), uri.path(), found.as_slice()), (scheme, path, params));
        assert_eq!(parse(&uri.to_string()), uri, "printed as {uri}");
    }

    #[rstest]
    #[case::empty("", "it has no scheme")]
    #[case::no_scheme(":path", "it has no scheme")]
    #[case::only_params("?a=b", "it has no scheme")]
    #[case::path_only("/dev/accel0", "`/dev/accel0` is not a scheme")]
    #[case::digit("0:1", "`0` is not a scheme")]
    #[case::upper_case("XDNA:0", "`XDNA` is not a scheme")]
    #[case::blank(" mock", "it contains ' '")]
    #[case::line_end("mock:aie2p\n", "it contains '\\n'")]
    #[case::unnamed("mock?=1", "a parameter without a name in `?=1`")]
    #[case::twice("mock?a=1&a=2", "parameter `a` is given twice")]
    fn invalid(#[case] text: &str, #[case] reason: &str) {
        let error = DeviceUri::parse(text).unwrap_err();
        let DriverError::InvalidUri { uri, reason: found } = &error else { panic!("{error}") };
        assert_eq!(uri, text);
        assert!(found.starts_with(reason), "{found}");
    }

    #[test]
    fn params_are_limited() {
        let text = |count: usize| (0..count).fold("mock?".to_owned(), |text, i| format!("{text}p{i}&"));
        assert_eq!(parse(&text(MAX_PARAMS)).params().len(), MAX_PARAMS);
        assert!(DeviceUri::parse(&text(MAX_PARAMS + 1)).is_err());
    }

    #[rstest]
    #[case("xdna:0")]
    #[case("xdna://0,1")]
    #[case("mock")]
    #[case("mock:aie2p?devices=2&coherent=false")]
    #[case("mock?verbose")]
    fn printing_keeps_the_form(#[case] text: &str) {
        assert_eq!(parse(text).to_string(), text);
    }

    #[test]
    fn all_separators_mean_the_same() {
        use std::collections::HashSet;
        let uris: HashSet<DeviceUri> = ["xdna:0", "xdna:/0", "xdna://0"].map(parse).into();
        assert_eq!(uris.len(), 1);
        assert_ne!(parse("xdna:0"), parse("xdna:///0"));
        assert_ne!(parse("xdna:0"), parse("xdna:0?a"));
    }

    #[rstest]
    #[case("mock", "", "mock")]
    #[case("mock?devices=2", "aie2p/1", "mock:aie2p/1?devices=2")]
    #[case("xdna://0,1", "0", "xdna://0")]
    #[case("xdna:0", "/dev/accel/accel0", "xdna:///dev/accel/accel0")]
    fn the_path_can_be_replaced(#[case] text: &str, #[case] path: &str, #[case] expected: &str) {
        assert_eq!(parse(text).with_path(path).unwrap().to_string(), expected);
    }

    #[rstest]
    #[case("a?b")]
    #[case("a b")]
    fn a_path_has_to_stay_one(#[case] path: &str) {
        assert!(matches!(parse("mock").with_path(path), Err(DriverError::InvalidUri { .. })));
    }

    #[test]
    fn parameters_are_checked_and_typed() {
        let uri = parse("mock:aie2p?devices=2&coherent=maybe");
        assert_eq!(uri.param("devices"), Some("2"));
        assert_eq!(uri.typed_param("devices", "a number").unwrap(), Some(2_usize));
        assert_eq!(uri.typed_param::<usize>("memory", "a number of bytes").unwrap(), None);
        assert_eq!(
            uri.typed_param::<bool>("coherent", "`true` or `false`").unwrap_err().to_string(),
            "`mock:aie2p?devices=2&coherent=maybe`: parameter `coherent`: `maybe` is not valid, expected `true` or `false`"
        );
        uri.check_params(&["coherent", "devices"]).unwrap();
        assert_eq!(
            uri.check_params(&["devices", "order"]).unwrap_err().to_string(),
            "`mock:aie2p?devices=2&coherent=maybe`: parameter `coherent`: unknown; `mock` takes: devices, order"
        );
        let error = parse("xdna:0?a").check_params(&[]).unwrap_err().to_string();
        assert_eq!(error, "`xdna:0?a`: parameter `a`: `xdna` takes no parameters; remove it");
    }

    #[rstest]
    #[case("/opt/rocm/lib", Ok("/opt/rocm/lib"))]
    #[case("%2fa%20b%2C%3B%26%3f%25", Ok("/a b,;&?%"))]
    #[case("%C3%A9", Ok("\u{e9}"))]
    #[case("", Ok(""))]
    #[case("100%", Err("`%` without two hexadecimal digits; write `%25`"))]
    #[case("%2", Err("`%` without two"))]
    #[case("%+1", Err("`%` without two"))]
    #[case("a%00", Err("zero byte"))]
    fn values_may_be_percent_encoded(#[case] value: &str, #[case] expected: Result<&str, &str>) {
        let uri = parse(&format!("xdna:0?libhsa={value}"));
        assert_eq!(uri.param("libhsa"), Some(value), "the text itself stays");
        match (uri.decoded_param("libhsa").unwrap(), expected) {
            (Ok(decoded), Ok(expected)) => assert_eq!(decoded, expected),
            (Err(error), Err(expected)) => assert!(error.to_string().contains(expected), "{error}"),
            (decoded, _) => panic!("{decoded:?}"),
        }
        assert!(uri.decoded_param("absent").is_none());
    }
}
