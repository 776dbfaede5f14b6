//! The mixed queues rely on their referee, so it must catch every violation of their rules.

use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use zk_tests::referee::{Figures, Readers, Referee, Rules, Word};
use zk_tests::wait::{PATIENCE, soon};
use zk_testserver::{ServerConfig, TestServer};

const DIRECTORY: &str = "/lock";

#[test]
fn turns_are_accepted_and_hand_offs_counted() {
    let figures = accepted(TURNS, None);
    assert_eq!((figures.exclusive, figures.hand_offs, figures.missed), (3, 2, 1));
}

#[test]
fn readers_may_be_together_and_overtake_each_other() {
    let figures = accepted(READERS, SOME_READERS);
    assert_eq!((figures.exclusive, figures.shared), (2, 3));
    assert_eq!((figures.hand_offs, figures.joins, figures.downgrades), (2, 2, 1));
}

#[test]
fn a_reader_that_never_joins_those_ahead_is_not_accepted() {
    // `ours` only joins a reader that is behind it, so it may wait for the readers ahead.
    let waiting = READERS.replace("0 enter shared /lock/a-0000000004\n1 leave\n0 leave", "1 leave");
    let problems = play(rules(SOME_READERS), &waiting).expect_err("it waits for readers");
    assert_eq!(problems, ["times that ours joined a reader: 0, not 1"]);
}

#[test]
fn nobody_may_be_beside_a_writer() {
    for (first, second) in
        [("exclusive", "exclusive"), ("exclusive", "shared"), ("shared", "exclusive")]
    {
        let both = [
            format!("0 enter {first} /lock/a-0000000001\n"),
            format!("1 enter {second} /lock/b-0000000002\n"),
        ];
        assert_problem(&both.concat(), "together: kazoo 1 by /lock/b-0000000002");
    }
}

#[test]
fn a_writer_that_becomes_a_reader_is_alone_until_then_and_no_longer() {
    let (downgrade, enter) = ("0 downgrade\n", "1 enter shared /lock/b-0000000003\n");
    let early = READERS.replace(&[downgrade, enter].concat(), &[enter, downgrade].concat());
    assert_problem(&early, "together");
    assert_problem(&READERS.replace(enter, &enter.replace("shared", "exclusive")), "together");
    let reader = READERS.replace(enter, &[enter, "1 downgrade\n"].concat());
    assert_problem(&reader, "a reader is downgraded: kazoo 1");
}

#[test]
fn everybody_speaks_in_turn() {
    let outside = TURNS.replacen("1 enter", "1 leave\n1 enter", 1);
    assert_problem(&outside, "out of turn, Outside: Leave of 1");
    let inside = TURNS.replacen("0 leave", "0 missed\n0 leave", 1);
    assert_problem(&inside, "out of turn, Inside: Missed of 0");
    assert_problem(&[TURNS, "1 done\n"].concat(), "out of turn, Done: Done of 1");
    assert_problem(&TURNS.replace("1 done\n", ""), "not over");
    assert_problem(&TURNS.replace("1 done\n", "1 gone\n"), "1 went away, Outside");
    assert!("enter alone /lock/a-0000000001".parse::<Word>().is_err());
}

#[test]
fn the_queue_is_served_in_order() {
    let overtaken = TURNS.replace("b-0000000002", "b-0000000000");
    assert_problem(&overtaken, "out of order (Exclusive)");
    let past_a_writer = overtaken.replace("exclusive /lock/b", "shared /lock/b");
    assert_problem(&past_a_writer, "out of order (Shared)");
    assert_problem(&READERS.replace("0000000005", "0000000004"), "out of order (Exclusive)");
    assert_problem(&TURNS.replace("0000000002", "7"), "no contender in /lock");
    assert_problem(&TURNS.replace("/lock/b", "/else/b"), "no contender in /lock");
}

#[test]
fn what_is_missing_is_told() {
    let rules = Rules { hand_offs_min: 3, grants_min: 2, ..rules(SOME_READERS) };
    let problems = play(rules, TURNS).expect_err("too little");
    assert_eq!(
        problems,
        [
            "hand-offs between implementations: 2, not 3",
            "shared grants of ours 0: 0, not 2",
            "exclusive grants of kazoo 1: 1, not 2",
            "shared grants of kazoo 1: 0, not 2",
            "times that kazoo joined a reader: 0, not 1",
            "times that ours joined a reader: 0, not 1",
            "downgrades: 0, not 1",
        ]
    );
}

#[tokio::test]
async fn the_program_accepts_turns() {
    let mut game = Game::start().await;
    for turn in 0..10 {
        let contender = &mut game.contenders[turn % 2];
        let enter = format!("enter exclusive {DIRECTORY}/x-{turn:010}");
        assert_eq!(contender.tell(&enter).await, "ok");
        let answer = if turn == 9 { "enough" } else { "on" };
        assert_eq!(contender.tell("leave").await, answer, "turn {turn}");
    }
    let (status, output, problems) = game.end().await;
    assert!(status.success(), "{problems}");
    assert_eq!(output, "9 hand-offs between them, 10 grants, 0 gave up\n");
}

#[tokio::test]
async fn the_program_catches_an_overlap_and_ends_the_queue() {
    let mut game = Game::start().await;
    for (number, contender) in game.contenders.iter_mut().enumerate() {
        let enter = format!("enter exclusive {DIRECTORY}/x-{number:010}");
        assert_eq!(contender.tell(&enter).await, "ok");
    }
    for contender in &mut game.contenders {
        assert_eq!(contender.tell("leave").await, "enough");
    }
    let (status, _, problems) = game.end().await;
    assert!(!status.success() && problems.contains("together"), "{problems}");
}

#[tokio::test]
async fn the_program_catches_what_is_left_behind() {
    let game = Game::start().await;
    let (directory, left) = (DIRECTORY, format!("{DIRECTORY}/x-0000000001"));
    for path in [directory, &left] {
        game.server.admin_create(path, b"", None);
    }
    let (status, _, problems) = game.end().await;
    assert!(
        !status.success() && problems.contains("left in /lock: [\"x-0000000001\"]"),
        "{problems}"
    );
}

#[tokio::test]
async fn the_program_catches_a_contender_that_goes_away() {
    let mut game = Game::start().await;
    let (one, mut other) = (game.contenders.remove(0), game.contenders.remove(0));
    drop(one);
    // The message of the other contender may arrive first.
    while other.tell("missed").await != "enough" {}
    game.contenders = vec![other];
    let (status, _, problems) = game.end().await;
    assert!(!status.success() && problems.contains("went away, Outside"), "{problems}");
}

/// The referee program, and two contenders that have sent `hello`.
struct Game {
    server: TestServer,
    referee: Child,
    output: BufReader<ChildStdout>,
    contenders: Vec<Contender>,
}

struct Contender(BufReader<TcpStream>);

impl Game {
    async fn start() -> Self {
        let server = TestServer::start(ServerConfig::default());
        let hosts = server.listen("127.0.0.1:0").await.expect("a free loopback port");
        let mut referee = Command::new(env!("CARGO_BIN_EXE_referee"))
            .args([&hosts.to_string(), DIRECTORY, "exclusive", "2", "9"])
            .arg(PATIENCE.as_secs().to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the referee was built with this test");
        let mut output = BufReader::new(referee.stdout.take().expect("it is piped"));
        let mut address = String::new();
        soon("an address", output.read_line(&mut address)).await.expect("it prints one");
        let mut contenders = Vec::new();
        for _ in 0..2 {
            let stream = TcpStream::connect(address.trim()).await.expect("the referee listens");
            contenders.push(Contender(BufReader::new(stream)));
        }
        for (contender, implementation) in contenders.iter_mut().zip(["ours", "kazoo"]) {
            contender.say(&format!("hello {implementation}")).await;
        }
        for contender in &mut contenders {
            assert_eq!(contender.answer().await, "go");
        }
        Self { server, referee, output, contenders }
    }

    /// Ends all contenders. Returns the status of the program, its last line, and its problems.
    async fn end(mut self) -> (ExitStatus, String, String) {
        for contender in &mut self.contenders {
            contender.say("done").await;
        }
        for contender in &mut self.contenders {
            assert_eq!(contender.answer().await, "bye");
        }
        self.contenders.clear();
        let (mut output, mut problems) = (String::new(), String::new());
        self.output.read_to_string(&mut output).await.expect("it is text");
        let mut errors = self.referee.stderr.take().expect("it is piped");
        errors.read_to_string(&mut problems).await.expect("it is text");
        let status = soon("its end", self.referee.wait()).await.expect("it was started");
        (status, output, problems)
    }
}

impl Contender {
    async fn tell(&mut self, word: &str) -> String {
        self.say(word).await;
        self.answer().await
    }

    async fn say(&mut self, word: &str) {
        let line = format!("{word}\n");
        self.0.write_all(line.as_bytes()).await.expect("the referee listens");
    }

    async fn answer(&mut self) -> String {
        let mut answer = String::new();
        soon("a reply", self.0.read_line(&mut answer)).await.expect("the referee talks");
        answer.trim_end().to_owned()
    }
}

/// The contenders take turns: first `ours`, then `kazoo` after it has given up once, then `ours`
/// again.
const TURNS: &str = "\
0 enter exclusive /lock/a-0000000001
1 missed
0 leave
1 enter exclusive /lock/b-0000000002
1 leave
0 enter exclusive /lock/a-0000000003
0 leave
0 done
1 done
";

/// A writer becomes a reader, and another reader joins it. Then contender 0 joins that reader
/// twice, first ahead of it in the queue and then behind it. Finally a writer follows.
const READERS: &str = "\
0 enter exclusive /lock/a-0000000001
0 downgrade
1 enter shared /lock/b-0000000003
0 leave
0 enter shared /lock/a-0000000002
0 leave
0 enter shared /lock/a-0000000004
1 leave
0 leave
1 enter exclusive /lock/b-0000000005
1 leave
0 done
1 done
";

const SOME_READERS: Option<Readers> = Some(Readers { joins_min: 1, downgrades_min: 1 });

#[track_caller]
fn accepted(words: &str, readers: Option<Readers>) -> Figures {
    play(rules(readers), words).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

#[track_caller]
fn assert_problem(words: &str, what: &str) {
    let problems = play(rules(None), words).expect_err(words);
    assert!(problems.iter().any(|problem| problem.contains(what)), "not {what}: {problems:#?}");
}

fn rules(readers: Option<Readers>) -> Rules {
    let directory = DIRECTORY.to_owned();
    Rules { directory, contenders: 2, hand_offs_min: 1, grants_min: 1, readers }
}

fn play(rules: Rules, words: &str) -> Result<Figures, Vec<String>> {
    let mut referee = Referee::new(rules);
    referee.admit("ours");
    referee.admit("kazoo");
    for line in words.lines() {
        let (number, word) = line.split_once(' ').expect("a number and a word");
        let number = number.parse().expect("a number");
        match word {
            "gone" => referee.hung_up(number),
            word => referee.hear(number, &word.parse().expect("a word")),
        }
    }
    referee.verdict()
}
