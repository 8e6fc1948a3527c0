//! How an NPU is reached.

use std::fmt;
use std::str::FromStr;

/// What a route is called in URIs and settings, for messages.
pub const ROUTES: &str = "`direct` or `rocr`";

/// How an NPU is reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Route {
    /// Through the kernel's own interface: see [`direct`](crate::direct).
    #[default]
    Direct,
    /// Through AMD's HSA runtime, ROCR.
    Rocr,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Rocr => "rocr",
        })
    }
}

impl FromStr for Route {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "direct" => Ok(Self::Direct),
            "rocr" => Ok(Self::Rocr),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_routes_are_the_same_thing() {
        for route in [Route::Direct, Route::Rocr] {
            assert_eq!(route.to_string().parse(), Ok(route));
            assert!(ROUTES.contains(&format!("`{route}`")));
        }
        assert_eq!("hsa".parse::<Route>(), Err(()));
    }
}
