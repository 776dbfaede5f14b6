//! `zklock status` and `zklock ls`: what the servers know of locks, as a table of 80 columns or as
//! JSON. Both read, and change nothing. With `--watch`, they print it again after each change.

use serde_json::{Value, json};
use zk_recipes::{Client, OpError};

use crate::clock::day_now;
use crate::connect::{close, connect, settled};
use crate::exec::complain;
use crate::exit::Failure;
use crate::follow::{Flow, Link, Read, View, follow};
use crate::options::{Connection, Ls, Printing, Status};
use crate::queue::{self, Queue};
use crate::show::{
    hidden_in_words, hidden_root, list_in_json, list_in_words, print, queues_in_json,
    queues_in_words,
};
use crate::survey::{self, Changed, Root, Survey, Update};

/// Runs `zklock status`.
pub(crate) async fn status(options: &Status) -> Result<u8, Failure> {
    let (paths, printing) = (&options.paths, &options.printing);
    let mut shown = Queues { queues: Vec::new(), paths, json: printing.json };
    show(&options.connection, printing, paths, &mut shown).await
}

/// Runs `zklock ls`.
pub(crate) async fn ls(options: &Ls) -> Result<u8, Failure> {
    let (root, printing) = (&options.root, &options.printing);
    let must_exist = !printing.watch;
    let mut shown = List { survey: Survey::default(), root, json: printing.json, must_exist };
    show(&options.connection, printing, std::slice::from_ref(root), &mut shown).await
}

/// Shows a view once, or after each change at these paths.
async fn show<V: View + Printed>(
    connection: &Connection,
    printing: &Printing,
    paths: &[String],
    view: &mut V,
) -> Result<u8, Failure> {
    let client = connect(connection, None).await?;
    let result =
        if printing.watch { follow(&client, paths, view).await } else { once(&client, view).await };
    close(&client).await;
    result
}

async fn once<V: View + Printed>(client: &Client, view: &mut V) -> Result<u8, Failure> {
    let read = settled(client, || view.read(client, Changed::Everything)).await?;
    view.apply(read)?;
    let (words, value) = (view.in_words(), view.in_json());
    print(&value.map_or(words, |value| format!("{value:#}\n")))?;
    view.complaint().map_or(Ok(0), Err)
}

/// What is printed as a whole, once or after each change.
trait Printed {
    fn in_words(&self) -> String;

    /// Returns what is printed instead of the words, if JSON is wanted.
    fn in_json(&self) -> Option<Value>;

    /// Returns what is missing in it, which is a failure if it is printed once.
    fn complaint(&self) -> Option<Failure>;

    /// Prints it as one of many: JSON as a line, and words followed by an empty line.
    fn print_frame(&self) -> Result<Flow, Failure> {
        let value = self.in_json();
        let text = value.map_or_else(|| self.in_words() + "\n", |value| format!("{value}\n"));
        Ok(if print(&text)? { Flow::Continue } else { Flow::End })
    }

    /// Says what has happened to the connection.
    fn print_link(&self, link: &Link, is_json: bool) -> Result<Flow, Failure> {
        complain(&link.in_words(day_now()));
        let is_read = !is_json || print(&format!("{}\n", json!({ "connection": link.word() })))?;
        Ok(if is_read { Flow::Continue } else { Flow::End })
    }
}

/// The locks of `zklock status`.
struct Queues<'a> {
    queues: Vec<Queue>,
    paths: &'a [String],
    json: bool,
}

impl View for Queues<'_> {
    type Update = Vec<(usize, Queue)>;

    fn read(&self, client: &Client, changed: Changed) -> Read<Self::Update> {
        let paths = self.paths.iter().cloned().enumerate();
        let paths: Vec<_> = paths.filter(|(_, path)| changed.includes(path)).collect();
        let client = client.clone();
        Box::pin(async move {
            let mut queues = Vec::new();
            for (number, path) in paths {
                queues.push((number, queue::read(&client, &path).await?));
            }
            Ok::<_, OpError>(queues)
        })
    }

    fn apply(&mut self, update: Self::Update) -> Result<bool, Failure> {
        let is_new = !update.is_empty();
        for (number, queue) in update {
            match self.queues.get_mut(number) {
                Some(old) => *old = queue,
                // The first update has all of them, in their order.
                None => self.queues.push(queue),
            }
        }
        Ok(is_new)
    }

    fn show(&mut self) -> Result<Flow, Failure> {
        self.print_frame()
    }

    fn show_link(&mut self, link: &Link) -> Result<Flow, Failure> {
        self.print_link(link, self.json)
    }
}

impl Printed for Queues<'_> {
    fn in_words(&self) -> String {
        queues_in_words(&self.queues, day_now())
    }

    fn in_json(&self) -> Option<Value> {
        self.json.then(|| queues_in_json(&self.queues, day_now()))
    }

    fn complaint(&self) -> Option<Failure> {
        self.queues.iter().find(|it| it.is_hidden).map(|it| hidden_root(&it.path))
    }
}

/// The list of `zklock ls`.
struct List<'a> {
    survey: Survey,
    root: &'a str,
    json: bool,
    must_exist: bool,
}

impl View for List<'_> {
    type Update = Update;

    fn read(&self, client: &Client, changed: Changed) -> Read<Update> {
        let (client, root) = (client.clone(), self.root.to_owned());
        Box::pin(async move { survey::read(&client, &root, changed).await })
    }

    fn apply(&mut self, update: Update) -> Result<bool, Failure> {
        let is_new = self.survey.apply(update);
        match self.survey.root {
            Root::Gone if self.must_exist => {
                Err(Failure::own(format!("{}: there is no such znode", self.root)))
            }
            Root::Hidden => Err(hidden_root(self.root)),
            Root::Gone | Root::There => Ok(is_new),
        }
    }

    fn show(&mut self) -> Result<Flow, Failure> {
        self.print_frame()
    }

    fn show_link(&mut self, link: &Link) -> Result<Flow, Failure> {
        self.print_link(link, self.json)
    }
}

impl Printed for List<'_> {
    fn in_words(&self) -> String {
        list_in_words(self.root, &self.survey, day_now())
    }

    fn in_json(&self) -> Option<Value> {
        self.json.then(|| list_in_json(&self.survey, day_now()))
    }

    fn complaint(&self) -> Option<Failure> {
        // The list is right, but may be incomplete.
        hidden_in_words(&self.survey).map(Failure::own)
    }
}
