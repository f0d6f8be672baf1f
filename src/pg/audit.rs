//! Holds `docs/unsafe.md` to the code: whatever is unsafe in this folder stands there, and nothing else does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// By file and place (a function, an implementation, a trait, a block of foreign functions, an attribute), how many unsafe
/// blocks are there; 1 where only the place itself is unsafe.
type Places = BTreeMap<(String, String), usize>;

#[test]
fn all_that_is_unsafe_was_read_twice_and_is_on_record() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut code = Places::new();
    read_folder(&root.join("src/pg"), "", &mut code);
    let record = recorded(&fs::read_to_string(root.join("docs/unsafe.md")).unwrap());
    let told = |places: &Places, place| places.get(place).copied().unwrap_or(0);
    let places: BTreeSet<_> = code.keys().chain(record.keys()).collect();
    let differ: Vec<String> = places
        .into_iter()
        .map(|place| (place, told(&code, place), told(&record, place)))
        .filter(|(_, code, record)| code != record)
        .map(|((file, place), code, record)| {
            format!("{file}: `{place}`: {code} in the code, {record} on record")
        })
        .collect();
    assert!(differ.is_empty(), "docs/unsafe.md says what to do:\n{}", differ.join("\n"));
}

#[test]
fn unsafe_places_are_found() {
    let source = r#"
        unsafe impl<'a, T> Hold<'a> for other::Thing<T> {}
        pub unsafe trait Told: Sync {}
        unsafe extern "C-unwind" { fn foreign(f: unsafe extern "C" fn(i32)); }
        #[unsafe(no_mangle)]
        fn plain() { // unsafe { }
            let unsafe_name = unsafe { 1 };
            let more = unsafe {
        }
        unsafe extern "C-unwind" fn hook() {}
        pub(super) unsafe fn with_block() { unsafe { 2 } }
    "#;
    let found = unsafe_in(source);
    let found: Vec<_> = found.iter().map(|(place, n)| (place.as_str(), *n)).collect();
    assert_eq!(
        found,
        [
            ("Hold for Thing", 1),
            ("extern", 1),
            ("hook", 1),
            ("no_mangle", 1),
            ("plain", 2),
            ("trait Told", 1),
            ("with_block", 1),
        ]
    );
}

fn read_folder(folder: &Path, prefix: &str, places: &mut Places) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            read_folder(&entry.path(), &format!("{name}/"), places);
        } else if !name.ends_with("audit.rs") {
            let found = unsafe_in(&fs::read_to_string(entry.path()).unwrap());
            places.extend(found.into_iter().map(|(place, n)| ((name.clone(), place), n)));
        }
    }
}

/// Line by line, which is enough for formatted code.
fn unsafe_in(source: &str) -> BTreeMap<String, usize> {
    let mut function = "";
    let mut found = BTreeMap::new();
    for code in source.lines().filter_map(|line| line.split("//").next()) {
        let named = code.split("fn ").nth(1).map(identifier);
        function = named.filter(|name| !name.is_empty()).unwrap_or(function);
        for rest in code.split("unsafe").skip(1).map(str::trim_start) {
            if let Some((place, n)) = unsafe_place(rest, function) {
                *found.entry(place).or_insert(0) += n;
            }
        }
    }
    found.values_mut().for_each(|n| *n = (*n).max(1));
    found
}

/// What the keyword stands at, by what follows it; and whether that is more than the place as such.
fn unsafe_place(rest: &str, function: &str) -> Option<(String, usize)> {
    if rest.starts_with('{') {
        return Some((function.to_owned(), 1));
    }
    if rest.starts_with("fn ") {
        return Some((function.to_owned(), 0));
    }
    if let Some(attribute) = rest.strip_prefix('(') {
        return Some((identifier(attribute).to_owned(), 0));
    }
    if let Some(name) = rest.strip_prefix("trait ") {
        return Some((format!("trait {}", identifier(name)), 0));
    }
    if let Some(implementation) = rest.strip_prefix("impl") {
        let (of, for_type) = implementation.split_once(" for ")?;
        let of = if of.starts_with('<') { of.split_once("> ")?.1 } else { of };
        return Some((format!("{} for {}", last_of_path(of), last_of_path(for_type)), 0));
    }
    let after = rest.strip_prefix("extern ")?.split('"').nth(2)?.trim_start();
    let place =
        if after.starts_with('{') { "extern" } else { after.strip_prefix("fn ").map(|_| function)? };
    Some((place.to_owned(), 0))
}

fn identifier(code: &str) -> &str {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")
}

fn last_of_path(code: &str) -> &str {
    let path = code.trim_start().split(['<', ' ', '{']).next().unwrap_or("");
    path.rsplit("::").next().unwrap_or(path)
}

/// The tables' first columns, under headings that name the files: `` `one`, `another` ×2 ``.
fn recorded(record: &str) -> Places {
    let (mut file, mut places) = ("", Places::new());
    for line in record.lines() {
        if let Some(name) = line.strip_prefix("### ") {
            file = name;
        }
        let Some(cell) = line.strip_prefix("| `").and_then(|row| row.split(" |").next()) else { continue };
        let names = cell.split(", `").filter_map(|name| name.split_once('`'));
        for (place, times) in names {
            let times = times.trim().strip_prefix('×').map_or(1, |n| n.parse().unwrap());
            *places.entry((file.to_owned(), place.to_owned())).or_insert(0) += times;
        }
    }
    places
}
