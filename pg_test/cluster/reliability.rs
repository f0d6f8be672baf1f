//! Holds docs/reliability.md to the tests: each that it names is there, and each row of its tables names one.

/// Names like `persist::a_clean_restart_keeps_everything`, between back quotes.
fn named(text: &str) -> Vec<&str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| quoted.contains("::") && !quoted.contains("..."))
        .collect()
}

/// Whether the name is a test's, in this folder or in the library's module.
fn is_test(name: &str) -> bool {
    let (module, test) = name.rsplit_once("::").unwrap();
    let file = match module.strip_suffix("::tests") {
        Some(module) => format!("src/{}.rs", module.replace("::", "/")),
        None => format!("pg_test/cluster/{module}.rs"),
    };
    // cargo runs tests in the package's directory
    let source = std::fs::read_to_string(file).unwrap_or_default();
    source.split("#[test]\n").skip(1).any(|after| after.trim_start().starts_with(&format!("fn {test}(")))
}

#[test]
fn every_promise_names_tests_that_are_there() {
    let page = std::fs::read_to_string("docs/reliability.md").unwrap();
    let missing: Vec<&str> = named(&page).into_iter().filter(|name| !is_test(name)).collect();
    assert_eq!(missing, [""; 0]);
    let rows = || page.lines().filter(|l| l.starts_with("| ") && !l.ends_with("| shown by |"));
    assert!(rows().count() > 20);
    let without: Vec<&str> =
        rows().filter(|row| named(row.rsplit(" | ").next().unwrap()).is_empty()).collect();
    assert_eq!(without, [""; 0]);
}

#[test]
fn a_test_that_is_not_there_is_found() {
    assert!(is_test("reliability::a_test_that_is_not_there_is_found"));
    assert!(is_test("table::tests::an_entry_is_made_once_and_counted_into"));
    for name in ["reliability::named", "reliability::a_test", "table::an_entry_is_made_once_and_counted_into"]
    {
        assert!(!is_test(name), "{name}");
    }
}
