//! Tables without lines, as wide as the terminal at most.
//!
//! Colours are escape sequences inside of cells: they take no room and go along when a cell is folded.

use unicode_width::UnicodeWidthChar;

/// Blanks before each cell.
const BEFORE: usize = 1;
/// Blanks after each cell, and where room is scarce.
const AFTER: [usize; 2] = [2, 0];
/// Longer words are broken before a row grows wider than the terminal.
const WORD: usize = 24;
const RESET: &str = "\x1b[0m";

/// The lines of a table; `width` is that of the terminal.
pub(super) fn lines(head: &[&str], rows: &[Vec<String>], width: Option<u16>) -> Vec<String> {
    let head: Vec<String> = head.iter().map(|&text| text.to_owned()).collect();
    let table: Vec<Vec<Cell>> = (!head.is_empty())
        .then_some(&head)
        .into_iter()
        .chain(rows)
        .map(|row| row.iter().map(|text| Cell::new(text)).collect())
        .collect();
    let mut widths = widest(&table, |cell| columns(&cell.letters));
    let mut after = AFTER[0];
    if let Some(width) = width {
        let words = widest(&table, Cell::longest_word);
        let natural = widths.clone();
        for blanks in AFTER {
            after = blanks;
            let room = usize::from(width).saturating_sub(natural.len() * (BEFORE + blanks));
            widths = fitted(natural.clone(), &words, room);
            if widths.iter().zip(&words).all(|(have, want)| have >= want) {
                break;
            }
        }
    }
    table
        .iter()
        .flat_map(|row| row_lines(row, &widths, after))
        .collect()
}

/// The greatest measure of each column.
fn widest(table: &[Vec<Cell>], measure: impl Fn(&Cell) -> usize) -> Vec<usize> {
    let count = table.iter().map(Vec::len).max().unwrap_or(0);
    (0..count)
        .map(|column| {
            let cells = table.iter().filter_map(|row| row.get(column));
            cells.map(&measure).max().unwrap_or(0)
        })
        .collect()
}

/// Takes from the widest columns until all fit: first down to their longest words, then further.
fn fitted(mut widths: Vec<usize>, words: &[usize], room: usize) -> Vec<usize> {
    let softly: Vec<usize> = words.iter().map(|&word| word.min(WORD)).collect();
    let at_all = vec![1; words.len()];
    for least in [softly, at_all] {
        while widths.iter().sum::<usize>() > room {
            let widest = widths
                .iter_mut()
                .zip(&least)
                .filter(|(width, least)| **width > **least)
                .max_by_key(|(width, _)| **width);
            let Some((width, _)) = widest else {
                break;
            };
            *width -= 1;
        }
    }
    widths
}

fn row_lines(row: &[Cell], widths: &[usize], after: usize) -> Vec<String> {
    let folded: Vec<Vec<Vec<Letter>>> = row
        .iter()
        .zip(widths)
        .map(|(cell, &width)| cell.fold(width))
        .collect();
    let height = folded.iter().map(Vec::len).max().unwrap_or(0);
    (0..height)
        .map(|index| {
            let mut line = String::new();
            for ((cell, lines), &width) in row.iter().zip(&folded).zip(widths) {
                let letters = lines.get(index).map_or(&[][..], Vec::as_slice);
                let blanks = width.saturating_sub(columns(letters)) + after;
                line.extend(std::iter::repeat_n(' ', BEFORE));
                line.push_str(&cell.painted(letters));
                line.extend(std::iter::repeat_n(' ', blanks));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

/// A letter and the number of its colour; 0 is none.
type Letter = (char, usize);

/// Columns that letters take.
fn columns(letters: &[Letter]) -> usize {
    letters
        .iter()
        .map(|(letter, _)| letter.width().unwrap_or(0))
        .sum()
}

struct Cell {
    letters: Vec<Letter>,
    /// Escape sequences; the first one stands for no colour.
    colours: Vec<String>,
}

impl Cell {
    fn new(text: &str) -> Self {
        let mut cell = Self {
            letters: Vec::new(),
            colours: vec![String::new()],
        };
        let mut colour = 0;
        let mut text = text.chars();
        while let Some(letter) = text.next() {
            if letter != '\x1b' {
                // What names and messages from elsewhere contain must not move the cursor.
                let letter = if letter.is_control() { ' ' } else { letter };
                cell.letters.push((letter, colour));
                continue;
            }
            let mut code = String::from(letter);
            for letter in text.by_ref() {
                code.push(letter);
                if letter.is_ascii_alphabetic() {
                    break;
                }
            }
            // The same goes for escape sequences that are no colours.
            if code == RESET {
                colour = 0;
            } else if code.ends_with('m') {
                colour = cell.colours.len();
                cell.colours.push(code);
            }
        }
        cell
    }

    fn words(&self) -> impl Iterator<Item = &[Letter]> {
        self.letters
            .split(|(letter, _)| *letter == ' ')
            .filter(|word| !word.is_empty())
    }

    fn longest_word(&self) -> usize {
        self.words().map(columns).max().unwrap_or(0)
    }

    /// Lines of at most this many columns, broken between words where possible.
    fn fold(&self, width: usize) -> Vec<Vec<Letter>> {
        if columns(&self.letters) <= width {
            return vec![self.letters.clone()];
        }
        // The blanks at the start say what belongs to what.
        let indent = self.letters.iter().take_while(|(letter, _)| *letter == ' ');
        let mut line: Vec<Letter> = indent.copied().collect();
        if columns(&line) * 2 > width {
            line.clear();
        }
        let mut lines = Vec::new();
        let mut is_empty = true;
        for word in self.words() {
            if !is_empty && columns(&line) + 1 + columns(word) > width {
                lines.push(std::mem::take(&mut line));
                is_empty = true;
            }
            if !is_empty {
                line.push((' ', word.first().map_or(0, |(_, colour)| *colour)));
            }
            for letter in word {
                if !line.is_empty() && columns(&line) + columns(&[*letter]) > width {
                    lines.push(std::mem::take(&mut line));
                }
                line.push(*letter);
            }
            is_empty = false;
        }
        lines.push(line);
        lines
    }

    fn painted(&self, letters: &[Letter]) -> String {
        let mut text = String::new();
        let mut now = 0;
        for (letter, colour) in letters.iter().copied().chain([('\0', 0)]) {
            if colour != now {
                if now != 0 {
                    text.push_str(RESET);
                }
                text.push_str(self.colours.get(colour).map_or("", String::as_str));
                now = colour;
            }
            if letter != '\0' {
                text.push(letter);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::lines;

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|&cell| cell.to_owned()).collect()
    }

    #[test]
    fn colours_take_no_room_and_stay_whole() {
        let rows = [
            row(&["a", "\x1b[31mexited (1)\x1b[0m", "now"]),
            row(&["b", "running", "\x1b[32mok\x1b[0m\x1b[31m (bad)\x1b[0m"]),
        ];
        let head = ["NAME", "STATUS", "WHEN"];
        let wide = [
            " NAME   STATUS       WHEN",
            " a      \x1b[31mexited (1)\x1b[0m   now",
            " b      running      \x1b[32mok\x1b[0m\x1b[31m (bad)\x1b[0m",
        ];
        assert_eq!(lines(&head, &rows, None), wide);
        assert_eq!(lines(&head, &rows, Some(80)), wide);
        assert_eq!(
            lines(&head, &rows[..1], Some(23)),
            [
                " NAME   STATUS   WHEN",
                " a      \x1b[31mexited\x1b[0m   now",
                "        \x1b[31m(1)\x1b[0m",
            ]
        );
    }

    #[test]
    fn wide_columns_give_way_between_words_before_any_word_is_broken() {
        let rows = [row(&[
            "   instance=0",
            "cpu=2 mem=23.5GB disk=251.9GB",
            "1 min ago",
        ])];
        assert_eq!(
            lines(&["NAME", "RESOURCES", "CREATED"], &rows, Some(48)),
            [
                " NAME            RESOURCES           CREATED",
                "    instance=0   cpu=2 mem=23.5GB    1 min ago",
                "                 disk=251.9GB",
            ]
        );
        assert!(
            lines(&["NAME", "RESOURCES", "CREATED"], &rows, Some(20))
                .iter()
                .all(|line| line.chars().count() <= 20)
        );
    }

    #[test]
    fn letters_of_two_columns_and_of_none_are_counted_right() {
        let rows = [row(&["漢字", "x"]), row(&["e\u{301}", "y\r\nz"])];
        assert_eq!(
            lines(&[], &rows, None),
            [" 漢字   x", " e\u{301}      y  z"]
        );
        assert!(lines(&[], &[], Some(80)).is_empty());
    }
}
