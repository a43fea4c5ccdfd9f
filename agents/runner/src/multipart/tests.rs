use super::*;

fn parse(body: &[u8], size: usize) -> Result<(String, Vec<u8>), FormError> {
    let mut form = Form::new("B", "archive");
    let (mut name, mut content) = (String::new(), Vec::new());
    for chunk in body.chunks(size) {
        for found in form.feed(chunk)? {
            match found {
                Found::File(file) => name = file,
                Found::Content(piece) => content.extend(piece),
            }
        }
    }
    form.finish()?;
    Ok((name, content))
}

fn part(header: &str, content: &[u8]) -> Vec<u8> {
    [
        b"--B\r\n",
        header.as_bytes(),
        b"\r\n\r\n",
        content,
        b"\r\n--B--\r\n",
    ]
    .concat()
}

#[test]
fn the_file_comes_out_whole_however_it_is_cut() {
    let content = b"\r\n--A\r\n--\r\n\0tar\r\n-".as_slice();
    let body = part(
        "Content-Disposition: form-data; name=\"archive\"; filename=\"a \\\"b\\\"\"",
        content,
    );
    for size in [1, 2, 3, 7, 1000] {
        assert_eq!(
            parse(&body, size),
            Ok(("a \"b\"".to_owned(), content.to_vec())),
            "{size}"
        );
    }
    let with_preamble = [b"ignored\r\n".as_slice(), &body].concat();
    assert_eq!(parse(&with_preamble, 5).unwrap().1, content);
    let empty = part(
        "content-disposition: form-data; filename=x; name=archive",
        b"",
    );
    assert_eq!(parse(&empty, 4), Ok(("x".to_owned(), Vec::new())));
}

#[test]
fn wrong_forms_are_refused_in_the_words_of_the_api() {
    let says = |body: &[u8]| parse(body, 4).unwrap_err().to_string();
    assert_eq!(says(b"--B--\r\n"), "empty form");
    assert_eq!(says(b"no form at all"), "empty form");
    assert_eq!(
        says(&part("Content-Disposition: form-data; filename=\"x\"", b"")),
        "missing field name"
    );
    assert_eq!(says(&part("X: y", b"")), "missing field name");
    assert_eq!(
        says(&part(
            "Content-Disposition: form-data; name=\"file\"; filename=\"x\"",
            b""
        )),
        "unexpected field file"
    );
    assert_eq!(
        says(&part(
            "Content-Disposition: form-data; name=\"archive\"",
            b""
        )),
        "missing file name"
    );
    let one = "--B\r\nContent-Disposition: form-data; name=archive; filename=x\r\n\r\nx\r\n";
    assert_eq!(
        says(format!("{one}{one}--B--\r\n").as_bytes()),
        "extra form field(s)"
    );
    assert_eq!(says(one.as_bytes()), "broken form: it ends early");
}

#[test]
fn the_content_type_names_the_boundary() {
    assert_eq!(
        boundary(Some("multipart/form-data; boundary=B")),
        Ok("B".to_owned())
    );
    assert_eq!(
        boundary(Some("Multipart/Form-Data; charset=x; Boundary=\"a b\"")),
        Ok("a b".to_owned())
    );
    let says = |header| boundary(header).unwrap_err().to_string();
    assert_eq!(says(None), "missing content-type header");
    assert_eq!(
        says(Some("text/plain; boundary=B")),
        "multipart/form-data expected, got text/plain"
    );
    assert_eq!(says(Some("multipart/form-data")), "missing boundary");
}
