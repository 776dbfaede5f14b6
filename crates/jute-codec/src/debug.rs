//! How errors are shown to those who have not asked for their message.

/// Makes `{:?}` of an error its message, because that is what `main` and `unwrap` print.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_by_message {
    ($type:ty) => {
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use thiserror::Error;

    #[derive(Error)]
    #[error("the value {value} is odd")]
    struct Odd {
        value: u8,
    }

    debug_by_message!(Odd);

    #[test]
    fn main_prints_the_message_of_an_error() {
        let error: Box<dyn std::error::Error> = Odd { value: 3 }.into();
        assert_eq!(format!("{error:?}"), "the value 3 is odd");
    }
}
