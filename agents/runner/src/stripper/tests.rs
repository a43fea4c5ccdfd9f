use super::*;

/// Feeds chunks at one moment and gives the text at the end.
fn strip(chunks: &[&[u8]]) -> Vec<u8> {
    let now = Instant::now();
    let mut stripper = Stripper::new(now);
    let mut got = Vec::new();
    for chunk in chunks {
        stripper.write(chunk, now, &mut |piece| got.extend(piece));
    }
    stripper.finish(&mut |piece| got.extend(piece));
    got
}

#[test]
fn escape_sequences_go_and_line_ends_are_plain() {
    for (input, want) in [
        ("\x1b[31mhi\x1b[0m\r\n", "hi\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\x1b]0;title\x07x\n", "x\n"),
        ("\x1b]8;;http://l\x1b\\link\x1b]8;;\x1b\\\n", "link\n"),
        ("\x1b(Bplain\x1b=\n", "plain\n"),
        ("\x1b[?2004hon\x1b[?2004l\n", "on\n"),
        ("bell\x07\n", "bell\n"),
        ("tab\there", "tab\there"),
        ("\x1b[38;2;1;2;3mrgb", "rgb"),
    ] {
        assert_eq!(strip(&[input.as_bytes()]), want.as_bytes(), "{input:?}");
    }
}

#[test]
fn overwritten_text_is_gone() {
    for (input, want) in [
        ("10%\r20%\r100%\r\n", "100%\n"),
        ("abcdef\rxy\n", "xycdef\n"),
        ("abcdef\r\x1b[Kxy\n", "xy\n"),
        ("abc\x08\x08X\n", "aXc\n"),
        ("abcdef\x1b[2Kz\n", "z\n"),
        ("abcdef\x1b[3Gz\n", "abzdef\n"),
        ("äöü\rx\n", "xöü\n"),
        ("abc\rä\n", "äbc\n"),
        ("abc\x1b[2D.\n", "a.c\n"),
    ] {
        assert_eq!(strip(&[input.as_bytes()]), want.as_bytes(), "{input:?}");
    }
}

#[test]
fn characters_cut_by_reads_are_put_together() {
    let text = "1 ünïcödé 漢字 🦀 e\u{301}\n".repeat(50);
    for size in 1..9 {
        let chunks: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
        assert_eq!(strip(&chunks), text.as_bytes(), "{size}");
    }
}

#[test]
fn broken_utf8_is_kept_as_it_is() {
    for input in [
        &b"a\xff\xfeb\n"[..],
        b"\xc3(\n",
        b"\xe2\x82",
        b"\xf0\x9f\n",
        b"\x80\x80\n",
    ] {
        assert_eq!(strip(&[input]), input, "{input:?}");
    }
}

#[test]
fn pieces_are_bounded_and_never_cut_a_character() {
    let now = Instant::now();
    let mut stripper = Stripper::new(now);
    let line = "🦀ü".repeat(300_000);
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    stripper.write(line.as_bytes(), now, &mut |piece| {
        pieces.push(piece.to_vec())
    });
    stripper.write(b"\r\n", now, &mut |piece| pieces.push(piece.to_vec()));
    stripper.finish(&mut |piece| pieces.push(piece.to_vec()));
    assert!(pieces.len() > 50);
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE + 4));
    assert!(
        pieces
            .iter()
            .all(|piece| std::str::from_utf8(piece).is_ok())
    );
    assert_eq!(pieces.concat(), format!("{line}\n").as_bytes());
}

#[test]
fn many_lines_come_out_complete_and_in_order() {
    let text: String = (0..100_000)
        .map(|n| format!("line {n} – ünïcode 漢字\r\n"))
        .collect();
    let got = strip(&text.as_bytes().chunks(4095).collect::<Vec<_>>());
    assert_eq!(String::from_utf8(got).unwrap(), text.replace('\r', ""));
}

#[test]
fn lines_are_given_out_soon_and_unfinished_ones_when_still() {
    let start = Instant::now();
    let mut stripper = Stripper::new(start);
    let mut got: Vec<Vec<u8>> = Vec::new();
    stripper.write(b"done\r\n50%", start, &mut |p| got.push(p.to_vec()));
    assert_eq!(stripper.next_flush(), Some(start + LINES_STILL));
    stripper.flush_due(start + LINES_STILL, &mut |p| got.push(p.to_vec()));
    assert_eq!(got, [b"done\n"]);
    assert_eq!(stripper.next_flush(), Some(start + STILL));
    stripper.flush_due(start + LINES_STILL, &mut |p| got.push(p.to_vec()));
    assert_eq!(got.len(), 1);
    stripper.flush_due(start + STILL, &mut |p| got.push(p.to_vec()));
    assert_eq!(got, [&b"done\n"[..], b"50%"]);
    assert_eq!(stripper.next_flush(), None);
    // What was given out is overwritten later: a terminal gets to see it so.
    stripper.write(b"\r60%\r70%\r\n", start + STILL, &mut |p| {
        got.push(p.to_vec())
    });
    stripper.finish(&mut |p| got.push(p.to_vec()));
    assert_eq!(got.last().unwrap(), b"\r70%\n");
}

#[test]
fn a_line_given_out_in_part_is_finished_or_overwritten() {
    for (later, want) in [
        ("def\r\n", "abcdef\n"),
        ("def\r12\r3\n", "abcdef\r32\n"),
        ("\r\n", "abc\n"),
        ("\r1\x1b[2K2\n", "abc\r2\n"),
    ] {
        let start = Instant::now();
        let mut stripper = Stripper::new(start);
        let mut got = Vec::new();
        stripper.write(b"abc", start, &mut |p| got.extend(p));
        stripper.flush_due(start + STILL, &mut |p| got.extend(p));
        stripper.write(later.as_bytes(), start + STILL, &mut |p| got.extend(p));
        stripper.finish(&mut |p| got.extend(p));
        assert_eq!(String::from_utf8(got).unwrap(), want, "{later:?}");
    }
}

#[test]
fn a_restless_line_is_given_out_at_the_latest_after_three_seconds() {
    let start = Instant::now();
    let mut stripper = Stripper::new(start);
    let mut got: Vec<Vec<u8>> = Vec::new();
    for step in 0..40_u32 {
        let now = start + Duration::from_millis(100) * step;
        stripper.write(format!("\r{step}%").as_bytes(), now, &mut |p| {
            got.push(p.to_vec())
        });
        stripper.flush_due(now, &mut |p| got.push(p.to_vec()));
    }
    assert_eq!(got, [b"30%"]);
}

/// The same bytes in any cut give the same text: the quick way for plain text and the slow one agree.
#[test]
fn cuts_change_nothing() {
    let mut state = 7_u64;
    let mut next = |count: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from((state >> 33) % count).unwrap()
    };
    let parts: [&[u8]; 12] = [
        b"plain text of some length, longer than a step",
        b"x",
        b"\r\n",
        b"\n",
        b"\r",
        b"\x1b[31m",
        b"\x1b[K",
        "ü漢🦀".as_bytes(),
        b"\x08",
        b"\t",
        b"\xff",
        b"\x1b]0;t\x07",
    ];
    for _ in 0..300 {
        let text: Vec<u8> = (0..next(60))
            .flat_map(|_| parts[next(12)].to_vec())
            .collect();
        let whole = strip(&[&text]);
        let single: Vec<&[u8]> = text.chunks(1).collect();
        let cut: Vec<&[u8]> = text.chunks(1 + next(40)).collect();
        let shown = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(strip(&single), whole, "{shown:?}");
        assert_eq!(strip(&cut), whole, "{shown:?}");
    }
}

#[test]
fn long_plain_lines_are_cut_into_pieces() {
    let now = Instant::now();
    let mut stripper = Stripper::new(now);
    let text = format!("{}\r\n{}\r\n", "a".repeat(100), "b".repeat(200_000));
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    stripper.write(text.as_bytes(), now, &mut |piece| {
        pieces.push(piece.to_vec());
    });
    stripper.finish(&mut |piece| pieces.push(piece.to_vec()));
    assert!(pieces.iter().all(|piece| piece.len() <= PIECE + 1));
    assert_eq!(pieces.concat(), text.replace('\r', "").as_bytes());
}
