//! Tests the scanners against `serde_json`, with texts cut at any position.

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::Value;

use super::{EventStream, FieldPath, FieldValue, JsonScanner, read_object, whole_number};

const PATHS: [&str; 6] = ["a", "a.b", "b.a.b", "é", "a.\\", "b.b.a.a"];

/// A text of JSON, with possibly repeated names.
#[derive(Clone, Debug)]
enum Json {
    Word(&'static str),
    Number(String),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Json {
    fn write(&self, space: &str, escapes: bool, into: &mut String) {
        match self {
            Self::Word(word) => into.push_str(word),
            Self::Number(number) => into.push_str(number),
            Self::Text(text) => write_text(text, escapes, into),
            Self::List(values) => {
                into.push('[');
                for (index, value) in values.iter().enumerate() {
                    into.push_str(if index == 0 { space } else { "," });
                    value.write(space, escapes, into);
                }
                into.push(']');
            }
            Self::Object(fields) => {
                into.push('{');
                for (index, (name, value)) in fields.iter().enumerate() {
                    into.push_str(if index == 0 { "" } else { "," });
                    into.push_str(space);
                    write_text(name, escapes, into);
                    into.push_str(space);
                    into.push(':');
                    into.push_str(space);
                    value.write(space, escapes, into);
                    into.push_str(space);
                }
                into.push('}');
            }
        }
    }
}

fn write_text(text: &str, escapes: bool, into: &mut String) {
    match escapes {
        true => {
            into.push('"');
            text.encode_utf16().for_each(|unit| write!(into, "\\u{unit:04X}").unwrap());
            into.push('"');
        }
        false => into.push_str(&serde_json::to_string(text).unwrap()),
    }
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof!["a", "b", "é", "\\\\", "[ab\"\\\\\u{1F600}{},:]{0,12}"]
}

fn object() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        prop_oneof![Just("true"), Just("false"), Just("null")].prop_map(Json::Word),
        prop_oneof!["0|[1-9][0-9]{0,20}", "-[1-9]", "-0", "[1-9]\\.[0-9]", "[1-9]e[1-3]", "[1-9]000\\.0"]
            .prop_map(Json::Number),
        "[a-z\"\\\\{}\\[\\],:\u{1F600}\n]{0,8}".prop_map(Json::Text),
    ];
    let any = leaf.prop_recursive(5, 48, 5, |inside| {
        prop_oneof![
            1 => prop::collection::vec(inside.clone(), 0..4).prop_map(Json::List),
            4 => prop::collection::vec((name(), inside), 0..5).prop_map(Json::Object),
        ]
    });
    prop::collection::vec((name(), any), 0..5).prop_map(Json::Object)
}

fn paths() -> Vec<FieldPath> {
    // A path with a backslash cannot be written, and is a name like any other.
    PATHS.iter().map(|path| FieldPath::parse(path).unwrap()).collect()
}

fn expected(text: &str) -> Vec<Option<u64>> {
    let parsed: Value = serde_json::from_str(text).unwrap();
    PATHS.iter().map(|path| whole_number(&at(&parsed, path)?.as_number()?.to_string())).collect()
}

fn at<'v>(parsed: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(parsed, |value, name| value.as_object()?.get(name))
}

fn scanned<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Option<u64>> {
    let mut scanner = JsonScanner::new(paths());
    pieces.into_iter().for_each(|piece| scanner.feed(piece));
    scanner.found(0..PATHS.len()).collect()
}

fn events<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Option<u64>> {
    let mut events = EventStream::new(paths());
    pieces.into_iter().for_each(|piece| events.feed(piece));
    events.found(0..PATHS.len()).collect()
}

#[test]
fn of_a_list_and_of_lines_the_last_object_that_has_a_field_counts() {
    for text in [
        r#"[{"a":1,"é":7},{"a":{"b":2}},{"a":42.0}]"#,
        "{\"a\":1,\"é\":7}\n{\"a\":{\"b\":2}}\r\n{\"a\":42.0}\n",
    ] {
        for length in [1, 5, 1_000] {
            let found = scanned(text.as_bytes().chunks(length));
            assert_eq!(found[..4], [Some(42), Some(2), None, Some(7)], "{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_scanner_finds_what_serde_json_finds_wherever_the_text_is_cut(
        object in object(), space in "[ \n\t]{0,2}", escapes: bool,
    ) {
        let mut text = String::new();
        object.write(&space, escapes, &mut text);
        let (expected, text) = (expected(&text), text.as_bytes());
        prop_assert_eq!(&scanned([text]), &expected);
        prop_assert_eq!(&scanned(text.chunks(1)), &expected);
        for cut in 0..text.len() {
            prop_assert_eq!(&scanned([&text[..cut], &text[cut..]]), &expected, "cut at {}", cut);
        }
    }

    #[test]
    fn a_whole_object_has_the_fields_that_serde_json_finds(object in object(), escapes: bool, cut in 1_usize..200) {
        let mut text = String::new();
        object.write("", escapes, &mut text);
        let parsed: Value = serde_json::from_str(&text).unwrap();
        let expected = PATHS.map(|path| at(&parsed, path).map(|value| match value {
            Value::String(text) => FieldValue { text: Some(text.clone()), number: None },
            Value::Bool(word) => FieldValue { text: Some(word.to_string()), number: None },
            Value::Number(number) => {
                let whole = whole_number(&number.to_string());
                let text = whole.map_or_else(|| number.to_string(), |whole| whole.to_string());
                FieldValue { text: Some(text), number: whole }
            }
            _ => FieldValue { text: None, number: None },
        }));
        let paths = paths();
        let found = read_object(text.as_bytes(), &paths).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            // Numbers that are not whole are written in more ways than one.
            match expected {
                Some(FieldValue { text: Some(text), number: None }) if text.contains(['e', '.']) => assert!(found.is_some()),
                _ => prop_assert_eq!(found, expected),
            }
        }
        prop_assert!(read_object(&text.as_bytes()[..text.len() - cut.min(text.len())], &paths).is_none());
        let [behind, marked] = [["", &text, ","], ["\u{feff}", &text, ""]].map(|parts| parts.concat());
        prop_assert!(read_object(behind.as_bytes(), &paths).is_none());
        prop_assert_eq!(read_object(marked.as_bytes(), &paths).unwrap(), found);
    }

    #[test]
    fn of_events_each_field_counts_as_in_the_last_that_has_it_wherever_they_are_cut(
        objects in prop::collection::vec(object(), 0..4), end in prop_oneof![Just("\n"), Just("\r\n"), Just("\r")],
        space in "[ \t]{0,1}", is_ended: bool, has_id: bool,
    ) {
        // Events of one line are skipped if they have none of the fields.
        let id = if has_id { format!("id: 7{end}") } else { String::new() };
        let (mut stream, mut last) = (format!(": a comment{end}{end}"), vec![None; PATHS.len()]);
        for object in &objects {
            let mut text = String::new();
            object.write(&space, false, &mut text);
            for (last, found) in last.iter_mut().zip(expected(&text)) {
                *last = found.or(*last);
            }
            write!(stream, "event: usage{end}data:{space}{text}{end}{id}{end}data: [DONE]{end}{end}").unwrap();
        }
        // An event of several lines, and one that never ends.
        write!(stream, "data: {{\"a\":{end}data: 41}}{end}{end}data: {{\"a\": 42{}", if is_ended { "}" } else { "" }).unwrap();
        last[0] = Some(if is_ended { 42 } else { 41 });
        let stream = stream.as_bytes();
        prop_assert_eq!(&events([stream]), &last);
        prop_assert_eq!(&events(stream.chunks(1)), &last);
        for cut in 0..stream.len() {
            prop_assert_eq!(&events([&stream[..cut], &stream[cut..]]), &last, "cut at {}", cut);
        }
    }

    #[test]
    fn no_bytes_make_a_scanner_panic_or_depend_on_where_they_are_cut(
        text in "[{}\\[\\]\",:\\\\a1 \n\r-]{0,64}", cut in 0_usize..64,
    ) {
        let found = |pieces: &[&str]| {
            let (mut scanner, mut events) = (JsonScanner::new(paths()), EventStream::new(paths()));
            for piece in pieces {
                scanner.feed(piece.as_bytes());
                events.feed(piece.as_bytes());
            }
            let of_events: Vec<_> = events.found(0..PATHS.len()).collect();
            (scanner.found(0..PATHS.len()).collect::<Vec<_>>(), of_events)
        };
        let (before, behind) = text.split_at(cut.min(text.len()));
        prop_assert_eq!(found(&[&text]), found(&[before, behind]));
    }
}

/// A name without an end once grew with each of its escapes.
#[test]
fn a_name_without_an_end_takes_no_memory() {
    let mut scanner = JsonScanner::new(paths());
    scanner.feed(b"{\"");
    (0..100_000).for_each(|_| scanner.feed(br"\n"));
    assert!(scanner.name_capacity() < 1_000, "{}", scanner.name_capacity());
    scanner.feed(b"\": 1, \"a\": 7}");
    assert_eq!(scanner.found(0..1).next(), Some(Some(7)));
}
