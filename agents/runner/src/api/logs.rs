//! The job's raw output over a WebSocket.

use std::borrow::Cow;
use std::sync::Arc;

use dstack_agent_kit::http::{HttpError, Reply, Request};
use dstack_agent_kit::websocket::tungstenite::protocol::CloseFrame;
use dstack_agent_kit::websocket::tungstenite::protocol::frame::coding::CloseCode;
use dstack_agent_kit::websocket::tungstenite::{self, Message};
use dstack_agent_kit::websocket::{self, Socket};
use futures_util::{SinkExt, StreamExt};

use crate::runner::Runner;

pub(super) async fn watch(runner: Arc<Runner>, request: Request) -> Result<Reply, HttpError> {
    let start = request.query("start_time").filter(|text| !text.is_empty());
    websocket::upgrade(request, async move |socket| {
        if let Err(error) = talk(&runner, socket, start).await {
            tracing::debug!(%error, "a log client has gone");
        }
    })
}

async fn talk(
    runner: &Runner,
    socket: Socket,
    start: Option<String>,
) -> Result<(), tungstenite::Error> {
    let (mut to, mut from) = socket.split();
    let mut offset = 0;
    if let Some(start) = start {
        let Some(second) = parse_time(&start) else {
            let reason = "failed to parse start_time value".into();
            let frame = CloseFrame {
                code: CloseCode::Unsupported,
                reason,
            };
            return to.send(Message::Close(Some(frame))).await;
        };
        offset = runner.raw.offset_of(second);
    }
    let mut extents = runner.raw.watch();
    loop {
        let extent = *extents.borrow_and_update();
        while offset < extent.len {
            let bytes = runner.raw.read(offset).map_err(tungstenite::Error::Io)?;
            offset += u64::try_from(bytes.len()).unwrap_or_default();
            to.send(Message::Binary(bytes.into())).await?;
        }
        if extent.is_ended {
            to.send(Message::Close(None)).await?;
            runner.watched();
            return Ok(());
        }
        tokio::select! {
            changed = extents.changed() => if changed.is_err() { return Ok(()) },
            // Pings are answered by reading on; anything else a client says is of no interest.
            said = from.next() => match said {
                None | Some(Ok(Message::Close(_))) => return Ok(()),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error),
            },
        }
    }
}

/// Seconds since 1970 of a time like `2026-11-29T19:00:00.5+01:00`; fractions are cut off.
fn parse_time(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = text.get(from..to)?;
        digits
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| digits.parse().ok())
            .flatten()
    };
    let is =
        |at: usize, allowed: &[u8]| text.as_bytes().get(at).is_some_and(|b| allowed.contains(b));
    if !(is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !((1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60)
    {
        return None;
    }
    let rest = text.get(19..)?;
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    // A plus sign that was not escaped arrives as a blank.
    let zone = if let Some(unescaped) = zone.strip_prefix(' ') {
        Cow::Owned(format!("+{unescaped}"))
    } else {
        Cow::Borrowed(zone)
    };
    let offset = match zone.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let digit = |b: &u8| b.is_ascii_digit().then(|| i64::from(b - b'0'));
            let minutes = (digit(h1)? * 10 + digit(h2)?) * 60 + digit(m1)? * 10 + digit(m2)?;
            if *sign == b'+' {
                minutes * 60
            } else {
                -minutes * 60
            }
        }
        _ => return None,
    };
    // Days since 1970, counting years from March so that the leap day is the last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        y * 365 + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (m * 153 + 2) / 5 + day
            - 1
            - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second - offset)
}

#[cfg(test)]
mod tests {
    use super::parse_time;

    #[test]
    fn times_are_read_with_zones_and_fractions() {
        for (text, want) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2026-11-29T19:00:00Z", Some(1_795_978_800)),
            ("2026-11-29T20:00:00+01:00", Some(1_795_978_800)),
            ("2026-11-29T20:00:00 01:00", Some(1_795_978_800)),
            ("2026-11-29T19:00:00.123456789Z", Some(1_795_978_800)),
            ("2024-02-29T12:00:00-00:30", Some(1_709_209_800)),
            ("2000-03-01T00:00:00z", Some(951_868_800)),
            ("1969-12-31T23:59:59Z", Some(-1)),
            ("2026-11-29T19:00:00", None),
            ("2026-13-29T19:00:00Z", None),
            ("2026-11-29", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text), want, "{text}");
        }
    }
}
