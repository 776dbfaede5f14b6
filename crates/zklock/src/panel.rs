//! What `zklock top` shows, without a terminal: rows of text with a style, and what keys change.

use std::cmp::Reverse;
use std::time::SystemTime;

use crate::follow::Link;
use crate::queue::Queue;
use crate::show::{count, entries, hidden_in_words, list};
use crate::survey::{Line, Root, Survey};
use crate::table::WIDTH;
use crate::text::{printable, shortened};

/// The rows around the table: the title, the connection, the heading of the table, the keys.
const OTHER_ROWS: usize = 4;

const KEYS: &str = "q: quit  up/down: move  enter: its queue  o: other order";
const KEYS_OF_QUEUE: &str = "q: quit  esc: back to the list  up/down: scroll";

/// A key that means something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Key {
    Back,
    Down,
    Enter,
    Order,
    PageDown,
    PageUp,
    Quit,
    Up,
}

/// How a row looks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Style {
    Bad,
    Good,
    Heading,
    Plain,
    Selected,
}

#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Row {
    pub(crate) style: Style,
    pub(crate) text: String,
}

/// The order of the locks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Order {
    Wait,
    Length,
    Path,
}

/// The queue of a lock, which covers the list.
struct Opened {
    path: String,
    queue: Option<Queue>,
    first: usize,
}

/// The locks, and which of them are seen.
pub(crate) struct Panel {
    pub(crate) survey: Survey,
    pub(crate) link: Option<Link>,
    root: String,
    order: Order,
    /// The path of the selected lock, which may have moved or gone since.
    selected: Option<String>,
    opened: Option<Opened>,
    /// How many rows the table had last.
    page: usize,
}

impl Panel {
    pub(crate) fn new(root: &str) -> Self {
        Self {
            survey: Survey::default(),
            link: None,
            root: root.to_owned(),
            order: Order::Wait,
            selected: None,
            opened: None,
            page: 1,
        }
    }

    /// Returns the path of the lock whose queue is shown.
    pub(crate) fn opened(&self) -> Option<&str> {
        self.opened.as_ref().map(|opened| &*opened.path)
    }

    /// Shows a queue, if it is still the one that is wanted.
    pub(crate) fn set_queue(&mut self, queue: Queue) {
        if let Some(opened) = self.opened.as_mut().filter(|opened| opened.path == queue.path) {
            opened.queue = Some(queue);
        }
    }

    /// Returns false if the key ends the program.
    pub(crate) fn press(&mut self, key: Key) -> bool {
        let page = self.page;
        if let Some(opened) = &mut self.opened {
            opened.first = moved(opened.first, key, page);
        } else if matches!(key, Key::Up | Key::Down | Key::PageUp | Key::PageDown) {
            let paths: Vec<&str> = self.lines().iter().map(|line| &*line.path).collect();
            let place = moved(self.place(&paths), key, page).min(paths.len().saturating_sub(1));
            self.selected = paths.get(place).map(|path| (*path).to_owned());
        }
        match key {
            Key::Quit => return false,
            Key::Back => self.opened = None,
            Key::Enter if self.opened.is_none() => {
                let paths: Vec<&str> = self.lines().iter().map(|line| &*line.path).collect();
                let path = paths.get(self.place(&paths)).map(|path| (*path).to_owned());
                self.selected = path.clone();
                self.opened = path.map(|path| Opened { path, queue: None, first: 0 });
            }
            Key::Order if self.opened.is_none() => {
                self.order = match self.order {
                    Order::Wait => Order::Length,
                    Order::Length => Order::Path,
                    Order::Path => Order::Wait,
                };
            }
            Key::Down | Key::Enter | Key::Order | Key::PageDown | Key::PageUp | Key::Up => {}
        }
        true
    }

    /// Returns as many rows as a terminal of this size has.
    pub(crate) fn rows(&mut self, width: usize, height: usize, now: SystemTime) -> Vec<Row> {
        self.page = height.saturating_sub(OTHER_ROWS).max(1);
        let mut rows = vec![self.title(), self.connection(now)];
        let keys = if let Some(opened) = &mut self.opened {
            let table = opened.queue.as_ref().map(|queue| entries(queue, now).lines(width));
            let mut lines = table.unwrap_or_default().into_iter();
            rows.push(Row { style: Style::Heading, text: lines.next().unwrap_or_default() });
            opened.first = opened.first.min(lines.len().saturating_sub(self.page));
            let seen = lines.skip(opened.first).take(self.page);
            rows.extend(seen.map(|text| Row { style: Style::Plain, text }));
            KEYS_OF_QUEUE
        } else {
            let lines = self.lines();
            let paths: Vec<&str> = lines.iter().map(|line| &*line.path).collect();
            let place = self.place(&paths);
            // The page with the selected lock.
            let first = place - place % self.page;
            let seen = lines.iter().skip(first).take(self.page).copied();
            // The mark of the selected lock is seen without colours.
            let table = list(seen, now).lines(width.saturating_sub(2));
            for (number, line) in table.iter().enumerate() {
                let is_selected = number == place - first + 1;
                let style = match number {
                    0 => Style::Heading,
                    _ if is_selected => Style::Selected,
                    _ => Style::Plain,
                };
                let mark = if is_selected { ">" } else { " " };
                rows.push(Row { style, text: format!("{mark} {line}") });
            }
            KEYS
        };
        while rows.len() + 1 < height {
            rows.push(Row { style: Style::Plain, text: String::new() });
        }
        rows.push(Row { style: Style::Plain, text: keys.to_owned() });
        rows.truncate(height);
        for row in &mut rows {
            row.text = shortened(&printable(&row.text), width);
        }
        rows
    }

    /// Returns everything as text, for readers other than terminals.
    pub(crate) fn frame(&self, now: SystemTime) -> String {
        let mut text =
            format!("{}\n{}\n", printable(&self.title().text), self.connection(now).text);
        for line in list(self.lines().into_iter(), now).lines(WIDTH) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn title(&self) -> Row {
        let text = if let Some(Opened { path, queue, .. }) = &self.opened {
            let what = queue.as_ref().map_or_else(
                || "not read yet".to_owned(),
                |queue| match queue.kind {
                    _ if queue.is_hidden => "not known, since you may not list it".to_owned(),
                    Some(kind) => {
                        format!("{kind}, {}", count(queue.entries.len(), "entry", "entries"))
                    }
                    None => "free, without entries".to_owned(),
                },
            );
            format!("zklock top {path}: {what}")
        } else if self.survey.root == Root::Gone {
            format!("zklock top {}: there is no such znode", self.root)
        } else {
            let lengths = self.survey.lines.values().map(|line| line.length);
            let order = match self.order {
                Order::Wait => "the oldest wait",
                Order::Length => "the longest queue",
                Order::Path => "the path",
            };
            format!(
                "zklock top {}: {}, {}, ordered by {order}",
                self.root,
                count(self.survey.lines.len(), "lock", "locks"),
                count(lengths.sum(), "entry", "entries")
            )
        };
        Row { style: Style::Plain, text }
    }

    fn connection(&self, now: SystemTime) -> Row {
        let is_connected = self.link.as_ref().is_none_or(|link| link.is_connected);
        let style = if is_connected { Style::Good } else { Style::Bad };
        let mut text =
            self.link.as_ref().map_or_else(|| "connected".to_owned(), |link| link.in_words(now));
        if let Some(hidden) = hidden_in_words(&self.survey) {
            text.push_str("; ");
            text.push_str(&hidden);
        }
        Row { style, text }
    }

    /// Returns the locks in their order.
    fn lines(&self) -> Vec<&Line> {
        let mut lines: Vec<&Line> = self.survey.lines.values().collect();
        // The sort is stable, so locks that are equal are in the order of their paths.
        match self.order {
            // Locks without a wait come last.
            Order::Wait => lines.sort_by_key(|line| (line.waits_since.is_none(), line.waits_since)),
            Order::Length => lines.sort_by_key(|line| Reverse(line.length)),
            Order::Path => {}
        }
        lines
    }

    fn place(&self, paths: &[&str]) -> usize {
        let selected = self.selected.as_deref();
        paths.iter().position(|path| Some(*path) == selected).unwrap_or(0)
    }
}

/// Returns a place after a key that moves.
fn moved(place: usize, key: Key, page: usize) -> usize {
    match key {
        Key::Up => place.saturating_sub(1),
        Key::Down => place + 1,
        Key::PageUp => place.saturating_sub(page),
        Key::PageDown => place + page,
        Key::Back | Key::Enter | Key::Order | Key::Quit => place,
    }
}

/// Returns the keys in what a terminal has sent.
pub(crate) fn keys(mut bytes: &[u8]) -> Vec<Key> {
    const SEQUENCES: [(&[u8], Key); 13] = [
        (b"\x1b[A", Key::Up),
        (b"\x1bOA", Key::Up),
        (b"\x1b[B", Key::Down),
        (b"\x1bOB", Key::Down),
        (b"\x1b[5~", Key::PageUp),
        (b"\x1b[6~", Key::PageDown),
        (b"k", Key::Up),
        (b"j", Key::Down),
        (b" ", Key::PageDown),
        (b"\n", Key::Enter),
        (b"\r", Key::Enter),
        (b"o", Key::Order),
        (b"q", Key::Quit),
    ];
    let mut keys = Vec::new();
    while let [first, rest @ ..] = bytes {
        let known = SEQUENCES.iter().find_map(|(it, key)| Some((bytes.strip_prefix(*it)?, *key)));
        bytes = if let Some((rest, key)) = known {
            keys.push(key);
            rest
        } else if let (0x1b, [b'[' | b'O', rest @ ..]) = (*first, rest) {
            // The sequence of another key ends with a letter or a tilde.
            let end = rest.iter().position(|it| it.is_ascii_alphabetic() || *it == b'~');
            end.and_then(|end| rest.get(end + 1..)).unwrap_or_default()
        } else {
            keys.extend((*first == 0x1b).then_some(Key::Back));
            rest
        };
    }
    keys
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn panel(locks: u64) -> Panel {
        let mut panel = Panel::new("/");
        panel.survey.root = Root::There;
        for number in 0..locks {
            let path = format!("/lock-{number:02}");
            // The last one waits longest.
            let waits_since = Some(UNIX_EPOCH + Duration::from_secs(100 - number));
            let length = usize::try_from(number % 5).unwrap();
            let line = Line { path: path.clone(), kind: "fair", length, holder: None, waits_since };
            panel.survey.lines.insert(path, line);
        }
        panel
    }

    fn selected(panel: &mut Panel) -> String {
        let rows = panel.rows(80, 24, UNIX_EPOCH + Duration::from_secs(200));
        assert_eq!(rows.len(), 24);
        assert!(rows.iter().all(|row| row.text.chars().count() <= 80));
        let of = |row: &Row| row.text.split_whitespace().nth(1).map(str::to_owned);
        rows.iter().find(|row| row.style == Style::Selected).and_then(of).unwrap_or_default()
    }

    #[test]
    fn a_lock_stays_selected_when_the_order_changes() {
        let mut panel = panel(50);
        assert_eq!(selected(&mut panel), "/lock-49", "it waits longest");
        assert!(panel.press(Key::Down));
        assert_eq!(selected(&mut panel), "/lock-48");
        for _ in 0..2 {
            panel.press(Key::Order);
            assert_eq!(selected(&mut panel), "/lock-48");
        }
        panel.press(Key::PageUp);
        assert_eq!(selected(&mut panel), "/lock-28", "a page has twenty locks");
        (0..99).for_each(|_| _ = panel.press(Key::Up));
        assert_eq!(selected(&mut panel), "/lock-00");
        (0..99).for_each(|_| _ = panel.press(Key::Down));
        assert_eq!(selected(&mut panel), "/lock-49");
        assert!(!panel.press(Key::Quit));
        assert_eq!(selected(&mut self::panel(0)), "");
    }

    #[test]
    fn keys_of_terminals_are_known_and_others_ignored() {
        use Key::{Back, Down, Enter, PageUp, Quit, Up};
        assert_eq!(keys(b"\x1b[Aj\x1bOB\x1b[5~\r"), [Up, Down, Down, PageUp, Enter]);
        assert_eq!(keys(b"\x1b[1;5Cx\x1b[3~q"), [Quit]);
        assert_eq!(keys(b"\x1b"), [Back]);
    }
}
