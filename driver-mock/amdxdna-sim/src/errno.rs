//! Error codes of kernel calls, by value and by name.

use std::fmt::{Display, Formatter};

/// An error code as the kernel returns it, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Self = Self(libc::$name);
            )*

            /// All codes that have a name here.
            const NAMED: &[(&str, Self)] = &[$((stringify!($name), Self::$name)),*];
        }
    };
}

errnos! {
    EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST ENODEV ENOTDIR EISDIR EINVAL ENFILE
    EMFILE ENOTTY EFBIG ENOSPC EROFS ENOSYS ENODATA ETIME ECANCELED EOVERFLOW EOPNOTSUPP ETIMEDOUT EALREADY
}

impl Errno {
    /// The code with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, errno)| *errno)
    }

    /// The value, as in `errno.h`.
    pub fn code(self) -> i32 {
        self.0
    }

    /// The calling thread's `errno`.
    pub fn last() -> Self {
        Self(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    }
}

impl Display for Errno {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match Self::NAMED.iter().find(|(_, errno)| errno == self) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_agree() {
        assert_eq!(Errno::by_name("ENOMEM"), Some(Errno::ENOMEM));
        assert_eq!(Errno::ENOMEM.code(), libc::ENOMEM);
        assert_eq!(Errno::EALREADY.to_string(), "EALREADY");
        assert_eq!(Errno::by_name("ENOTHING"), None);
    }
}
