//! `zklock top`: the locks below a root as they change, on a terminal, or as frames of text if there
//! is none.

use std::time::Duration;

use tokio::time::{Interval, interval};
use zk_recipes::Client;

use crate::clock::day_now;
use crate::connect::{close, connect};
use crate::exit::Failure;
use crate::follow::{Flow, Link, Read, View, follow};
use crate::options::Top;
use crate::panel::Panel;
use crate::queue::{self, Queue};
use crate::screen::{Input, Screen};
use crate::show::{hidden_root, print};
use crate::survey::{self, Changed, Root, Update};

/// How often the terminal is drawn, since ages grow.
const REDRAW: Duration = Duration::from_secs(1);

/// Runs the verb.
pub(crate) async fn top(options: &Top) -> Result<u8, Failure> {
    let client = connect(&options.connection, None).await?;
    let cannot = |error| Failure::own(format!("the terminal cannot be used: {error}"));
    let result = match Screen::open().map_err(cannot) {
        Ok(screen) => {
            let (panel, redraw) = (Panel::new(&options.root), interval(REDRAW));
            let mut shown = Shown { panel, screen, redraw, root: &options.root };
            // The terminal is as before when this is printed.
            let result = follow(&client, std::slice::from_ref(&options.root), &mut shown).await;
            drop(shown);
            result
        }
        Err(failure) => Err(failure),
    };
    close(&client).await;
    result
}

struct Shown<'a> {
    panel: Panel,
    screen: Option<Screen>,
    redraw: Interval,
    root: &'a str,
}

/// What was read: lines of the list, and the queue that is shown.
struct Seen {
    update: Update,
    queue: Option<Queue>,
}

impl View for Shown<'_> {
    type Update = Seen;

    fn read(&self, client: &Client, changed: Changed) -> Read<Seen> {
        let opened = self.panel.opened().filter(|path| changed.includes(path)).map(str::to_owned);
        let (client, root) = (client.clone(), self.root.to_owned());
        Box::pin(async move {
            let update = survey::read(&client, &root, changed).await?;
            let queue = match opened {
                Some(path) => Some(queue::read(&client, &path).await?),
                None => None,
            };
            Ok(Seen { update, queue })
        })
    }

    fn apply(&mut self, Seen { update, queue }: Seen) -> Result<bool, Failure> {
        let is_new = self.panel.survey.apply(update) || queue.is_some();
        if self.panel.survey.root == Root::Hidden {
            return Err(hidden_root(self.root));
        }
        if let Some(queue) = queue {
            self.panel.set_queue(queue);
        }
        Ok(is_new)
    }

    fn show(&mut self) -> Result<Flow, Failure> {
        let now = day_now();
        let is_seen = match &self.screen {
            Some(screen) => {
                let (width, height) = Screen::size();
                screen.draw(&self.panel.rows(width, height, now))
            }
            None => print(&format!("{}\n", self.panel.frame(now)))?,
        };
        Ok(if is_seen { Flow::Continue } else { Flow::End })
    }

    fn show_link(&mut self, link: &Link) -> Result<Flow, Failure> {
        self.panel.link = Some(link.clone());
        self.show()
    }

    async fn input(&mut self) -> Result<Flow, Failure> {
        let Some(screen) = &mut self.screen else { return std::future::pending().await };
        let input = tokio::select! {
            input = screen.input() => input,
            _ = self.redraw.tick() => Input::Resized,
        };
        let keys = match input {
            Input::Keys(keys) => keys,
            Input::Resized => Vec::new(),
            Input::Ended => return Ok(Flow::End),
        };
        let opened = self.panel.opened().map(str::to_owned);
        if !keys.into_iter().all(|key| self.panel.press(key)) {
            return Ok(Flow::End);
        }
        let flow = self.show()?;
        let to_read = self.panel.opened().filter(|path| Some(*path) != opened.as_deref());
        Ok(to_read.map_or(flow, |path| Flow::Read(path.to_owned())))
    }
}
