//! A map whose keys are the tokens of flights.
//!
//! Tokens are counted up, and flights complete nearly in the order of their submission. So the map
//! is a queue: the newest token is added at its end, and the next one to be removed is at its front.
//! Any other order is allowed, and costs a search.

use std::collections::VecDeque;

use super::flight::Token;

/// Capacity of the buffer that a map keeps although it has few values, or none.
const KEPT: usize = 8;

/// A map whose keys are tokens.
#[derive(Debug)]
pub(crate) struct TokenMap<T> {
    /// The values in the order of their tokens, and the gaps that values leave which are removed out
    /// of turn. There is none at the front, and there are at most as many gaps as values.
    entries: VecDeque<(Token, Option<T>)>,
    /// Number of values.
    len: usize,
}

impl<T> Default for TokenMap<T> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), len: 0 }
    }
}

impl<T> TokenMap<T> {
    /// Adds a value. Returns the one that it replaces.
    pub(crate) fn insert(&mut self, token: Token, value: T) -> Option<T> {
        let replaced = match self.find(token) {
            Ok(index) => self.entries.get_mut(index).and_then(|(_, slot)| slot.replace(value)),
            Err(index) if index == self.entries.len() => {
                self.entries.push_back((token, Some(value)));
                None
            }
            Err(index) => {
                self.entries.insert(index, (token, Some(value)));
                None
            }
        };
        self.len += usize::from(replaced.is_none());
        replaced
    }

    /// Returns the value of a token.
    pub(crate) fn get(&self, token: Token) -> Option<&T> {
        let (_, slot) = self.entries.get(self.find(token).ok()?)?;
        slot.as_ref()
    }

    /// Returns the value of a token, mutably.
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let index = self.find(token).ok()?;
        let (_, slot) = self.entries.get_mut(index)?;
        slot.as_mut()
    }

    /// Removes the value of a token.
    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let value = match self.find(token).ok()? {
            0 => self.entries.pop_front()?.1,
            index => self.entries.get_mut(index)?.1.take(),
        }?;
        self.len -= 1;
        while self.entries.front().is_some_and(|(_, slot)| slot.is_none()) {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.len {
            self.entries.retain(|(_, slot)| slot.is_some());
        }
        let needed = self.entries.len();
        if self.entries.capacity() > KEPT.max(4 * needed) {
            self.entries.shrink_to(KEPT.max(2 * needed));
        }
        Some(value)
    }

    /// Returns the index of a token, or the one at which it is to be inserted.
    fn find(&self, token: Token) -> Result<usize, usize> {
        let (Some((first, _)), Some((last, _))) = (self.entries.front(), self.entries.back())
        else {
            return Err(0);
        };
        if *first == token {
            Ok(0)
        } else if *last == token {
            Ok(self.entries.len() - 1)
        } else if *last < token {
            Err(self.entries.len())
        } else {
            self.entries.binary_search_by_key(&token, |(token, _)| *token)
        }
    }

    /// Returns true if there is no value.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the values in the order of their tokens.
    #[cfg(test)]
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().filter_map(|(_, slot)| slot.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Action {
        Insert(Token),
        Remove(Token),
    }

    fn action() -> impl Strategy<Value = Action> {
        let token = || (0..40_u64).prop_map(Token);
        prop_oneof![token().prop_map(Action::Insert), token().prop_map(Action::Remove)]
    }

    proptest! {
        #[test]
        fn it_does_what_an_ordered_map_does(
            actions in proptest::collection::vec(action(), 0..200)
        ) {
            let mut map = TokenMap::default();
            let mut model = BTreeMap::new();
            for (value, action) in actions.into_iter().enumerate() {
                match action {
                    Action::Insert(token) => {
                        assert_eq!(map.insert(token, value), model.insert(token, value));
                    }
                    Action::Remove(token) => assert_eq!(map.remove(token), model.remove(&token)),
                }
                for token in (0..40).map(Token) {
                    assert_eq!(map.get(token), model.get(&token));
                    assert_eq!(map.get_mut(token), model.get_mut(&token));
                }
                assert!(map.values().eq(model.values()));
                assert_eq!((map.is_empty(), map.len), (model.is_empty(), model.len()));
                assert!(map.entries.len() <= 2 * map.len, "{map:?}");
            }
        }
    }

    #[test]
    fn few_values_keep_no_large_buffer() {
        for left in [0, 1, 100] {
            let mut map = TokenMap::default();
            (0..10_000).for_each(|token| assert_eq!(map.insert(Token(token), token), None));
            for token in (left..10_000).rev() {
                assert_eq!(map.remove(Token(token)), Some(token));
            }
            let capacity = map.entries.capacity();
            assert!(capacity <= KEPT.max(4 * map.entries.len()), "{capacity} for {left}");
        }
    }
}
