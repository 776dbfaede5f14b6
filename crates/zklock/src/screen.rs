//! The terminal of `zklock top`. The sequences are those that every terminal since the VT100 has, so
//! no crate is needed for them.

use std::io::{self, IsTerminal as _, Write as _};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::io::{AsyncReadExt as _, Stdin, stdin};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::panel::{Key, Row, Style, keys};
use crate::show::print;

/// The size of a terminal that does not know its own.
const SIZE: (usize, usize) = (80, 24);

/// Another screen of the terminal, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";

/// A terminal whose keys arrive one by one. It is as it was when this is dropped.
pub(crate) struct Screen {
    before: Termios,
    // One handle, which keeps what was read when a wait is cancelled.
    stdin: Stdin,
    resized: Signal,
    has_colours: bool,
}

/// What happens at a terminal.
pub(crate) enum Input {
    Keys(Vec<Key>),
    Resized,
    /// Nobody is there any more.
    Ended,
}

impl Screen {
    /// Takes over the terminal. Returns `None` if there is none that can be drawn on.
    pub(crate) fn open() -> io::Result<Option<Self>> {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        // Ctrl-C still sends SIGINT. Ctrl-Z does nothing: the shell could not use the screen.
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        raw.special_codes[SpecialCodeIndex::VSUSP] = 0;
        let resized = signal(SignalKind::window_change())?;
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        // https://no-color.org: any value but an empty one.
        let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let screen = Self { before, stdin: stdin(), resized, has_colours };
        io::stdout().write_all(ENTER.as_bytes())?;
        Ok(Some(screen))
    }

    /// Returns the number of columns and rows.
    pub(crate) fn size() -> (usize, usize) {
        let size = tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_col), usize::from(size.ws_row)));
        size.filter(|(columns, rows)| *columns > 0 && *rows > 0).unwrap_or(SIZE)
    }

    /// Draws rows. Returns false if nobody is there any more.
    pub(crate) fn draw(&self, rows: &[Row]) -> bool {
        let mut text = "\x1b[H".to_owned();
        for (number, row) in rows.iter().enumerate() {
            if number > 0 {
                text.push_str("\r\n");
            }
            let style = match row.style {
                Style::Bad if self.has_colours => "\x1b[1;31m",
                Style::Good if self.has_colours => "\x1b[32m",
                Style::Bad | Style::Heading => "\x1b[1m",
                Style::Selected => "\x1b[7m",
                Style::Good | Style::Plain => "",
            };
            text.push_str(style);
            text.push_str(&row.text);
            if !style.is_empty() {
                text.push_str("\x1b[m");
            }
            text.push_str("\x1b[K");
        }
        text.push_str("\x1b[J");
        // A terminal that cannot be written to is gone.
        print(&text).unwrap_or(false)
    }

    /// Waits for what happens next. Cancel safe.
    pub(crate) async fn input(&mut self) -> Input {
        let mut bytes = [0; 64];
        tokio::select! {
            read = self.stdin.read(&mut bytes) => match read {
                Ok(length) if length > 0 => Input::Keys(keys(bytes.get(..length).unwrap_or(&[]))),
                Ok(_) | Err(_) => Input::Ended,
            },
            _ = self.resized.recv() => Input::Resized,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs neither.
        let _ = io::stdout().write_all(LEAVE.as_bytes());
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
