//! How operations are written down: words for what an operation can be asked for, `name field=value
//! ...` for the operation. Two macros make the types and their text forms.

use core::fmt::{self, Write as _};
use core::str::FromStr;

/// A script as text, with a comment above.
pub fn commented(script: &impl fmt::Display, comment: &str) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = write!(text, "{script}");
    text
}

/// What can be a field of an operation.
pub trait Field: Sized {
    /// Reads it.
    fn read(text: &str) -> Option<Self>;
    /// Writes it.
    ///
    /// # Errors
    /// What the formatter says.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

impl<T: FromStr + fmt::Display> Field for T {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Enumerations whose variants are words.
#[macro_export]
macro_rules! words {
    ($( $(#[$doc:meta])* $name:ident { $( $(#[$vdoc:meta])* $variant:ident = $text:literal, )* } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $(#[$vdoc])* $variant, )* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];
        }

        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.write_str(match self { $( Self::$variant => $text, )* })
            }
        }

        impl ::core::str::FromStr for $name {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $( $text => Ok(Self::$variant), )* _ => Err(()) }
            }
        }
    )* };
}

/// The enumeration `Op`: each operation has a name and fields.
#[macro_export]
macro_rules! operations {
    ($( $(#[$doc:meta])* $name:ident = $text:literal { $( $field:ident: $type:ty, )* } )*) => {
        /// One operation. Offsets and lengths are bytes, `page` and `pages` whole pages inside the
        /// buffer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op { $( $(#[$doc])* $name { $( #[doc = concat!("`", stringify!($field), "=`")] $field: $type, )* }, )* }

        impl ::core::fmt::Display for Op {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self { $( Self::$name { $( $field, )* } => {
                    f.write_str($text)?;
                    $( f.write_str(concat!(" ", stringify!($field), "="))?; $crate::text::Field::show($field, f)?; )*
                    Ok(())
                } )* }
            }
        }

        impl Op {
            /// Reads the name of an operation and its fields.
            ///
            /// # Errors
            /// What is wrong with the text.
            pub fn parse(name: &str, fields: &[(&str, &str)]) -> Result<Self, String> {
                let find = |name: &str| fields.iter().find(|f| f.0 == name).map(|f| f.1);
                match name {
                    $( $text => Ok(Self::$name { $( $field: {
                        let text = find(stringify!($field))
                            .ok_or(concat!($text, " needs ", stringify!($field)))?;
                        $crate::text::Field::read(text).ok_or_else(|| format!("{}={text}?", stringify!($field)))?
                    }, )* }), )*
                    _ => Err(format!("no operation is called {name}")),
                }
            }
        }
    };
}
