//! Operations that settle, and the plain ones, in turns.

use std::time::{Duration, Instant};

use jute_codec::CreateMode;
use zk_recipes::SettledClient;
use zk_session::Client;

use crate::options::Options;
use crate::report::{Report, round};
use crate::{Outcome, directory};

/// Number of operations of one turn.
const TURN: u32 = 100;

/// Measures turns of plain and settled operations, one operation at a time, and reports the medians
/// of the ratios of the times of neighbouring turns.
pub(crate) async fn run(options: &Options) -> Outcome<Report> {
    let client = options.client()?.connect().await?;
    let directory = directory::make(&client).await?;
    let path = format!("{directory}/znode");
    let data = vec![b'x'; usize::try_from(options.size)?];
    client.create(&path, data.clone(), CreateMode::Persistent).await?;
    let markers = format!("{directory}/markers");
    let settled = SettledClient::new(&client, &markers)?;
    // The marker exists from now on.
    settled.set_data(&path, data.clone(), None).await?;

    let mut ratios: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
    let [gets, sets] = &mut ratios;
    let until = Instant::now() + options.duration();
    let mut is_settled_first = false;
    while Instant::now() < until || gets.len() < 3 {
        // Whatever the first turn of a pair does to the second one, it does to both kinds.
        is_settled_first = !is_settled_first;
        let first = turn(&client, &settled, &path, &data, is_settled_first).await?;
        let second = turn(&client, &settled, &path, &data, !is_settled_first).await?;
        let (settling, plain) = if is_settled_first { (first, second) } else { (second, first) };
        let ([get, set], [plain_get, plain_set]) = (settling, plain);
        gets.push(get.as_secs_f64() / plain_get.as_secs_f64());
        sets.push(set.as_secs_f64() / plain_set.as_secs_f64());
    }

    drop(settled);
    directory::remove(&client, &directory).await?;
    client.close().await;
    let mut report = Report::new(options).figure("turns", ratios[0].len() as f64);
    for (name, ratios) in ["get", "set"].into_iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        let at = |part: usize| ratios.get(ratios.len() * part / 20).copied().unwrap_or(f64::NAN);
        report = report
            .figure(&format!("{name}_vs_plain"), round(at(10)))
            .figure(&format!("{name}_vs_plain_low"), round(at(1)))
            .figure(&format!("{name}_vs_plain_high"), round(at(19)));
    }
    Ok(report)
}

/// Reads and writes, and returns the times.
async fn turn(
    client: &Client,
    settled: &SettledClient,
    path: &str,
    data: &[u8],
    is_settled: bool,
) -> Outcome<[Duration; 2]> {
    let start = Instant::now();
    for _ in 0..TURN {
        if is_settled {
            settled.get_data(path).await?;
        } else {
            client.get_data(path).await?;
        }
    }
    let middle = Instant::now();
    for _ in 0..TURN {
        if is_settled {
            settled.set_data(path, data.to_vec(), None).await?;
        } else {
            client.set_data(path, data.to_vec(), None).await?;
        }
    }
    Ok([middle - start, middle.elapsed()])
}
