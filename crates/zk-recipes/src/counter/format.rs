//! How the number of a counter is stored.

use bytes::Bytes;

/// How the number of a [`Counter`](crate::Counter) is stored.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum CounterFormat {
    /// Decimal text, as kazoo's `Counter` stores integers.
    #[default]
    Decimal,
    /// Four bytes, the most significant one first, as Curator's `SharedCount` and kazoo's `Counter`
    /// with `support_curator` store numbers.
    BigEndian32,
    /// Eight bytes, the most significant one first, as Curator's `DistributedAtomicLong` stores
    /// numbers.
    BigEndian64,
}

impl CounterFormat {
    /// Returns the data, or `None` if the number does not fit.
    pub(super) fn encode(self, number: i64) -> Option<Bytes> {
        Some(match self {
            Self::Decimal => number.to_string().into(),
            Self::BigEndian32 => Bytes::copy_from_slice(&i32::try_from(number).ok()?.to_be_bytes()),
            Self::BigEndian64 => Bytes::copy_from_slice(&number.to_be_bytes()),
        })
    }

    /// Returns the number, or `None` if the data has another format.
    pub(super) fn decode(self, data: &[u8]) -> Option<i64> {
        match self {
            Self::Decimal => std::str::from_utf8(data).ok()?.parse().ok(),
            Self::BigEndian32 => Some(i32::from_be_bytes(data.try_into().ok()?).into()),
            Self::BigEndian64 => Some(i64::from_be_bytes(data.try_into().ok()?)),
        }
    }

    /// Describes the format, for errors.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Decimal => "a decimal number of 64 bits",
            Self::BigEndian32 => "a big-endian number of 4 bytes",
            Self::BigEndian64 => "a big-endian number of 8 bytes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_reads_what_it_writes_and_refuses_the_others() {
        use CounterFormat::{BigEndian32, BigEndian64, Decimal};
        for number in [0, 1, -1, 123_456_789, i64::from(i32::MIN), i64::from(i32::MAX)] {
            for format in [Decimal, BigEndian32, BigEndian64] {
                let data = format.encode(number).expect("it fits");
                assert_eq!(format.decode(&data), Some(number));
            }
        }
        for number in [i64::MIN, i64::MAX, i64::from(i32::MAX) + 1] {
            assert_eq!(BigEndian32.encode(number), None);
            assert_eq!(Decimal.decode(&Decimal.encode(number).expect("it fits")), Some(number));
        }
        for data in ["1.5", "", " ", "9223372036854775808", "x", "\u{fffd}"] {
            assert_eq!(Decimal.decode(data.as_bytes()), None, "{data:?}");
        }
        assert_eq!(BigEndian32.decode(b"12345678"), None);
        assert_eq!(BigEndian64.decode(b"1234"), None);
    }
}
