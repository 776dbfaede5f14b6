//! The dates of certificate revocation lists, which rustls checks but does not tell.
//!
//! For a certificate, rustls consults the first list that is responsible for it. If there is an older
//! list of the same CA beside a newer one, the newer one has to come first.

use std::cmp::Reverse;
use std::fmt;

use tokio_rustls::rustls::pki_types::{CertificateRevocationListDer, UnixTime};

/// The defect of bytes that are not a list.
pub(super) const MALFORMED: &str =
    "a list is malformed; look at it with `openssl crl -text`, and fetch it from the CA again";

// The tags of X.690.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;

/// The defect of a list that has expired.
pub(super) fn expired(date: Option<Date>) -> String {
    let on = date.map(|date| format!(" on {date}")).unwrap_or_default();
    format!(
        "a list has expired{on}, so it does not tell what was revoked since; fetch the next one \
         from the CA, and check the clock of this machine, or set `allow_expired_crls`"
    )
}

/// A list with its dates.
pub(super) struct Dated {
    list: CertificateRevocationListDer<'static>,
    issued: Date,
    next: Date,
}

impl Dated {
    /// Returns `None` if the dates cannot be read.
    pub(super) fn new(list: CertificateRevocationListDer<'static>) -> Option<Self> {
        let (issued, next) = dates(&list)?;
        Some(Self { list, issued, next })
    }

    /// Returns when the list has expired, if it has.
    pub(super) fn expired_at(&self, now: UnixTime) -> Option<Date> {
        (self.next.seconds() <= i128::from(now.as_secs())).then_some(self.next)
    }
}

/// Returns the lists such that a newer one precedes each older one.
pub(super) fn newest_first(
    mut lists: Vec<Dated>,
) -> impl Iterator<Item = CertificateRevocationListDer<'static>> {
    lists.sort_by_key(|dated| Reverse(dated.issued));
    lists.into_iter().map(|dated| dated.list)
}

/// A time of a list, in UTC.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Date {
    year: u16,
    /// Month, day, hour, minute and second.
    rest: [u8; 5],
}

impl Date {
    /// Reads `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ`, which are the only forms of RFC 5280.
    fn parse(tag: u8, text: &[u8]) -> Option<Self> {
        let digits = text.strip_suffix(b"Z")?;
        let mut pairs = digits.chunks(2).map(|pair| match *pair {
            [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some((a - b'0') * 10 + (b - b'0')),
            _ => None,
        });
        let mut pair = || pairs.next()?;
        let year = match tag {
            UTC_TIME => {
                let year = u16::from(pair()?);
                if year < 50 { 2000 + year } else { 1900 + year }
            }
            GENERALIZED_TIME => u16::from(pair()?) * 100 + u16::from(pair()?),
            _ => return None,
        };
        let rest = [pair()?, pair()?, pair()?, pair()?, pair()?];
        pairs.next().is_none().then_some(Self { year, rest })
    }

    /// Returns the seconds since the beginning of 1970.
    fn seconds(self) -> i128 {
        let [month, day, hour, minute, second] = self.rest.map(i128::from);
        // The year begins with March, so that the leap day is its last one.
        let year = i128::from(self.year) - i128::from(month <= 2);
        let month = (month + 9) % 12;
        let days = year * 365 + year.div_euclid(4) - year.div_euclid(100)
            + year.div_euclid(400)
            + (month * 153 + 2) / 5
            + day
            - 719_469;
        ((days * 24 + hour) * 60 + minute) * 60 + second
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [month, day, hour, minute, second] = self.rest;
        write!(f, "{}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC", self.year)
    }
}

/// Returns `thisUpdate` and `nextUpdate` of a list.
fn dates(list: &[u8]) -> Option<(Date, Date)> {
    let mut list = Der(list).sequence()?;
    let mut signed = list.sequence()?;
    // The version is optional in X.509, but not here: version 1 cannot be used.
    signed.next().filter(|(tag, _)| *tag == INTEGER)?;
    let (_algorithm, _issuer) = (signed.sequence()?, signed.sequence()?);
    Some((signed.date()?, signed.date()?))
}

/// Reads values in DER, one after the other.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Returns the tag and the contents of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk::<2>()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = digits.iter().try_fold(0_u32, |length, digit| {
                Some(length.checked_mul(0x100)? + u32::from(*digit))
            })?;
            (usize::try_from(length).ok()?, rest)
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, contents))
    }

    fn sequence(&mut self) -> Option<Self> {
        let (tag, contents) = self.next()?;
        (tag == SEQUENCE).then_some(Self(contents))
    }

    fn date(&mut self) -> Option<Date> {
        let (tag, contents) = self.next()?;
        Date::parse(tag, contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<i128> {
        Date::parse(tag, text.as_bytes()).map(Date::seconds)
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (text, expected) in [
            ("19700101000000Z", 0),
            ("19691231235959Z", -1),
            ("20000229000000Z", 951_782_400),
            ("20000301000000Z", 951_868_800),
            ("20240229120000Z", 1_709_208_000),
            ("20261126120507Z", 1_795_694_707),
            ("21000301000000Z", 4_107_542_400),
        ] {
            assert_eq!(seconds(GENERALIZED_TIME, text), Some(expected), "{text}");
        }
        assert_eq!(seconds(UTC_TIME, "491231235959Z"), Some(2_524_607_999));
        assert_eq!(seconds(UTC_TIME, "500101000000Z"), Some(-631_152_000));
        for wrong in ["", "Z", "2024022912000Z", "202402291200000Z", "2024022912000xZ"] {
            assert_eq!(seconds(GENERALIZED_TIME, wrong), None, "{wrong}");
        }
        assert_eq!(seconds(UTC_TIME, "20240229120000Z"), None);
        assert_eq!(seconds(INTEGER, "20240229120000Z"), None);
    }

    #[test]
    fn bytes_that_are_no_list_have_no_dates() {
        let list = b"\x30\x2b\x30\x29\x02\x01\x01\x30\x00\x30\x00\
            \x17\x0d240229120000Z\x18\x0f20240301000000Z\x30\x00";
        let (issued, next) = dates(list).expect("it has both");
        assert_eq!(issued.to_string(), "2024-02-29 12:00:00 UTC");
        assert_eq!(next.to_string(), "2024-03-01 00:00:00 UTC");
        for length in 0..list.len() {
            assert_eq!(dates(&list[..length]), None);
        }
        for wrong in ["\x30\u{7f}", "\x30\x02\x02\x00"] {
            assert_eq!(dates(wrong.as_bytes()), None);
        }
        assert_eq!(dates(b"\x30\x85\xff\xff\xff\xff\xff"), None);
        assert_eq!(dates(b"\x30\xff"), None);
    }
}
