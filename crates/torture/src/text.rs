//! How operations are written down: words for what an operation can be asked for,
//! `name field=value ...` for the operation. Two macros make the types and their text forms.

use core::fmt::{self, Write as _};
use core::str::FromStr;

/// The error in a text that is to be a script, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadText(String);

impl BadText {
    /// Says it.
    pub fn new(what: impl fmt::Display) -> Self {
        Self(what.to_string())
    }
}

impl fmt::Display for BadText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for BadText {}

impl From<&'static str> for BadText {
    fn from(what: &'static str) -> Self {
        Self::new(what)
    }
}

/// A text that is none of the words that are known in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWord;

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an unknown word")
    }
}

impl core::error::Error for UnknownWord {}

/// A script as text, with a comment above.
pub fn commented(script: &impl fmt::Display, comment: &str) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let _ = write!(text, "{script}");
    text
}

/// A type that can be a field of an operation.
pub trait Field: Sized {
    /// Reads it.
    fn read(text: &str) -> Option<Self>;
    /// Writes it.
    ///
    /// # Errors
    /// Writes by the formatter.
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
            type Err = $crate::text::UnknownWord;
            fn from_str(text: &str) -> Result<Self, $crate::text::UnknownWord> {
                match text {
                    $( $text => Ok(Self::$variant), )*
                    _ => Err($crate::text::UnknownWord),
                }
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
            /// Returns what is wrong with the text.
            pub fn parse(
                name: &str,
                fields: &[(&str, &str)],
            ) -> Result<Self, $crate::text::BadText> {
                use $crate::text::BadText;
                let find = |name: &str| fields.iter().find(|f| f.0 == name).map(|f| f.1);
                match name {
                    $( $text => Ok(Self::$name { $( $field: {
                        let text = find(stringify!($field))
                            .ok_or(concat!($text, " needs ", stringify!($field)))?;
                        $crate::text::Field::read(text)
                            .ok_or_else(|| {
                                BadText::new(format_args!("{}={text}?", stringify!($field)))
                            })?
                    }, )* }), )*
                    _ => Err(BadText::new(format_args!("no operation is called {name}"))),
                }
            }
        }
    };
}
