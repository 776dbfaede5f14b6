//! The values that the code has, and how pages write them.

use syn::{BinOp, Expr, Lit};

use super::super::File;
use super::pages;

/// A value of an expression.
enum Value {
    Number(u64),
    Milliseconds(u64),
    Text(String),
}

/// Returns the ways in which a page may write the value that follows a text. The file must have the
/// text once. In a page, the value is the next number.
pub(super) fn spellings(files: &[File], path: &str, before: &str) -> Vec<String> {
    let file = files.iter().find(|file| file.path == path);
    let place = file.and_then(|file| Some((file, pages::place(&file.text, before)?)));
    let Some((file, place)) = place else { return Vec::new() };
    if path.ends_with(".md") {
        let next = pages::numbers(&file.text).into_iter().find(|it| it.at.start >= place.end);
        let Some(number) = next else { return Vec::new() };
        // 21.0 s and 3.6.0 may be written as 21 s and 3.6.
        let seconds = number.text.replace(".0 ", " ");
        let version = number.digits.strip_suffix(".0").filter(|it| it.contains('.'));
        let version = version.map(str::to_owned);
        return [number.digits, number.text, seconds].into_iter().chain(version).collect();
    }
    let after = file.text.get(place.end..).unwrap_or_default().trim_start_matches(' ');
    let expression = after.split([';', ',', '}', '\n']).next().unwrap_or_default();
    let value = syn::parse_str(expression).ok().and_then(|it| evaluated(&it));
    value.map(ways).unwrap_or_default()
}

/// Returns how a page may write the value of an expression.
pub(crate) fn spellings_of(expression: &Expr) -> Vec<String> {
    evaluated(expression).map(ways).unwrap_or_default()
}

fn ways(value: Value) -> Vec<String> {
    match value {
        Value::Milliseconds(it) => {
            let seconds = it as f64 / 1000.0;
            let mut ways = vec![format!("{it} ms"), format!("{seconds} s")];
            ways.push(format!("{seconds} seconds"));
            ways
        }
        Value::Number(it) => {
            let digits = it.to_string();
            let groups = digits.as_bytes().rchunks(3).rev();
            let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
            let mut ways = vec![groups.join(","), digits];
            if it % (1 << 20) == 0 {
                ways.push(format!("{} MiB", it >> 20));
            }
            ways
        }
        // A version, perhaps without its last numbers.
        Value::Text(it) => {
            let ends = it.match_indices('.').map(|(at, _)| at).chain([it.len()]);
            ends.filter_map(|end| it.get(..end)).map(str::to_owned).collect()
        }
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "other expressions need an arm when they come")]
fn evaluated(expression: &Expr) -> Option<Value> {
    let number = |expression: &Expr| match evaluated(expression) {
        Some(Value::Number(it)) => Some(it),
        _ => None,
    };
    match expression {
        Expr::Lit(it) => match &it.lit {
            Lit::Int(it) => it.base10_parse().ok().map(Value::Number),
            Lit::Str(it) => Some(Value::Text(it.value())),
            _ => None,
        },
        Expr::Binary(it) => {
            let (left, right) = (number(&it.left)?, number(&it.right)?);
            match it.op {
                BinOp::Mul(_) => left.checked_mul(right).map(Value::Number),
                BinOp::Shl(_) => left.checked_shl(right.try_into().ok()?).map(Value::Number),
                _ => None,
            }
        }
        Expr::Cast(it) => evaluated(&it.expr),
        Expr::Path(it) => {
            let names: Vec<String> =
                it.path.segments.iter().map(|part| part.ident.to_string()).collect();
            (names == ["i32", "MAX"]).then_some(Value::Number(0x7fff_ffff))
        }
        Expr::Call(it) => {
            let Expr::Path(function) = &*it.func else { return None };
            let argument = number(it.args.first()?)?;
            let name = function.path.segments.last()?.ident.to_string();
            match &*name {
                "from_secs" => argument.checked_mul(1000).map(Value::Milliseconds),
                "from_millis" => Some(Value::Milliseconds(argument)),
                _ => None,
            }
        }
        _ => None,
    }
}
