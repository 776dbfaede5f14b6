//! `record!` keeps a record as short as its declaration in `zookeeper.jute`; `wire_enum!` makes
//! numbers of the protocol that stay open for newer peers.

/// Defines a record: a struct whose fields stand on the wire in the order of declaration.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $( $(#[$field_meta:meta])* $field:ident: $ty:ty ),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Eq, Hash, PartialEq)]
        #[allow(clippy::exhaustive_structs, reason = "the wire fixes the fields")]
        $vis struct $name { $( $(#[$field_meta])* $vis $field: $ty ),* }

        impl $crate::wire::Record for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $( $crate::wire::Record::encode(&self.$field, out); )*
            }

            fn decode(
                input: &mut $crate::wire::Reader,
            ) -> Result<Self, $crate::error::DecodeError> {
                Ok(Self {
                    $( $field: <$ty as $crate::wire::Record>::decode(input)
                        .map_err(|error| error.within(stringify!($name), stringify!($field)))?, )*
                })
            }
        }
    };
}

/// Defines a number of the protocol with named values; other values are kept as they are.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$value_meta:meta])* $value:ident = $number:expr, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[allow(clippy::exhaustive_structs, reason = "an open number")]
        pub struct $name(pub i32);

        impl $name {
            $( $(#[$value_meta])* pub const $value: Self = Self($number); )*

            /// Name of the value, if this crate knows it.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $( Self::$value => Some(stringify!($value)), )*
                    _ => None,
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl $crate::wire::Record for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $crate::wire::Record::encode(&self.0, out);
            }

            fn decode(
                input: &mut $crate::wire::Reader,
            ) -> Result<Self, $crate::error::DecodeError> {
                Ok(Self(<i32 as $crate::wire::Record>::decode(input)?))
            }
        }
    };
}
