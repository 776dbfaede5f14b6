//! With `record!`, the definition of a record is as short as its declaration in `zookeeper.jute`.
//! `wire_enum!` defines numbers of the protocol that may get new values in newer peers.

/// Defines a record: a struct whose fields are written in the order of declaration.
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $( $(#[$field_meta:meta])* $field:ident: $ty:ty ),* $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Eq, Hash, PartialEq)]
        $vis struct $name { $( $(#[$field_meta])* $vis $field: $ty ),* }

        impl $crate::wire::Record for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $( $crate::wire::Record::encode(&self.$field, out); )*
            }

            fn decode(
                input: &mut $crate::wire::Reader,
            ) -> Result<Self, $crate::error::DecodeError> {
                Ok(Self {
                    $( $field: input.field(stringify!($name), stringify!($field))?, )*
                })
            }
        }
    };
}

/// Encodes a tuple struct as the one number that it contains.
macro_rules! number_record {
    ($name:ident($ty:ty)) => {
        impl $crate::wire::Record for $name {
            fn encode(&self, out: &mut bytes::BytesMut) {
                $crate::wire::Record::encode(&self.0, out);
            }

            fn decode(
                input: &mut $crate::wire::Reader,
            ) -> Result<Self, $crate::error::DecodeError> {
                <$ty as $crate::wire::Record>::decode(input).map(Self)
            }
        }
    };
}

/// Defines a number of the protocol with named values. Unknown values are kept unchanged.
macro_rules! wire_enum {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $( $(#[$value_meta:meta])* $value:ident = $number:expr, )* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub i32);

        impl $name {
            $( $(#[$value_meta])* pub const $value: Self = Self($number); )*

            /// The values that this crate knows.
            pub const KNOWN: &[Self] = &[ $( Self::$value ),* ];

            /// Name of the value, or `None` if this crate does not know the value.
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

        number_record!($name(i32));
    };
}
