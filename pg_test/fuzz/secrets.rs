//! Utility statements with secrets wherever one may stand, several in a string, among others that hold none.

use super::{Input, has_secret};
use crate::secrets::masked;

/// `?` is a secret string, `!` one that may also be a name, `_` white space or a comment.
const WITH_SECRETS: &[&str] = &[
    "CREATE_ROLE_r_PASSWORD_?",
    "create_user_u_encrypted_password_?_valid_until_?",
    "ALTER_ROLE_r_WITH_PASSWORD_?",
    "ALTER_USER_u_PASSWORD_?_CONNECTION_LIMIT_5",
    "CREATE_GROUP_g_PASSWORD_?",
    "ALTER_SYSTEM_SET_primary_conninfo_=_?",
    "ALTER_SYSTEM_SET_a.b_TO_!,_!",
    "ALTER_ROLE_r_IN_DATABASE_d_SET_my.key_=_!",
    "ALTER_DATABASE_d_SET_my.key_TO_!",
    "CREATE_SUBSCRIPTION_s_CONNECTION_?_PUBLICATION_p_WITH_(connect=false)",
    "ALTER_SUBSCRIPTION_s_CONNECTION_?",
    "CREATE_SERVER_s_FOREIGN_DATA_WRAPPER_w_OPTIONS_(host_?,_password_?)",
    "ALTER_SERVER_s_OPTIONS_(SET_password_?)",
    "CREATE_USER_MAPPING_FOR_u_SERVER_s_OPTIONS_(password_?)",
    "ALTER_USER_MAPPING_FOR_u_SERVER_s_OPTIONS_(SET_password_?)",
    "CREATE_FOREIGN_DATA_WRAPPER_w_OPTIONS_(a_?)",
    "CREATE_FOREIGN_TABLE_t_(a_int)_SERVER_s_OPTIONS_(p_?)",
    "ALTER_TABLE_t_ALTER_a_OPTIONS_(ADD_p_?)",
    "IMPORT_FOREIGN_SCHEMA_x_FROM_SERVER_s_INTO_y_OPTIONS_(p_?)",
    "COPY_t_FROM_PROGRAM_?_WITH_(FORMAT_csv)",
    "COPY_t_TO_PROGRAM_?",
];
/// Of these the body goes, and what is around it stays.
const WITH_BODIES: &[&str] = &[
    "DO_$$BEGIN ALTER ROLE r PASSWORD 's3cret'; END$$",
    "DO_LANGUAGE_plpgsql_$b$ ... connection ''s3cret'' $b$",
    "CREATE_OR_REPLACE_FUNCTION_f()_RETURNS_void_LANGUAGE_sql_AS_$$ SELECT dblink('password=s3cret') $$",
    "CREATE_PROCEDURE_p()_AS_'ALTER ROLE r PASSWORD ''s3cret'''",
];
const WITHOUT: &[&str] = &[
    "SELECT 'a'",
    "SET work_mem = '5MB'",
    "CREATE TABLE t (password text DEFAULT 'x')",
    "COMMENT ON ROLE r IS 'it' /* c */",
];
const SPACES: &[&str] = &[" ", "\n", " /* ' */ ", " -- \"\n", "/* /* $$ */ */", "\t"];
const WITH_COMMENTS: &[&str] = &["/* s3cret */", " --s3cret '\n", " ", "/*/**/' s3cret */"];
const STRINGS: &[&str] = &[
    "'s3cret'",
    "'it''s3cret'",
    "e'\\\\s3cret'",
    "E'\\'s3cret'",
    "U&'s3cret'",
    "$$s3cret$$",
    "$a$'s3cret$a$",
    "''\n's3cret'",
    "'a' -- '\n 's3cret'",
    "n's3cret'",
    "'s3cret;'",
    "'\u{e9}s3cret'",
    "'/* s3cret'",
    "'--s3cret'",
    "'$1s3cret'",
];
const NAMES: &[&str] = &["s3cret", "\"s3cret\"", "\"a\"\"s3cret\"", "\u{e9}s3cret", "_s3cret"];

pub fn holds(input: &[u8]) {
    let mut input = Input(input);
    let mut text = String::new();
    let mut kept = Vec::new();
    while !input.is_empty() {
        match input.below(8) {
            0 | 1 => {
                let statement = input.one_of(WITHOUT);
                kept.push(statement);
                text.push_str(statement);
            }
            2 => text.push_str(&filled(input.one_of(WITH_BODIES), SPACES, &mut input)),
            3 => text.push_str(&filled(input.one_of(WITH_SECRETS), WITH_COMMENTS, &mut input)),
            _ => text.push_str(&filled(input.one_of(WITH_SECRETS), SPACES, &mut input)),
        }
        text.push_str(input.one_of(&[";", " ; ", ";;", "\n;\n"]));
    }
    let shown = masked(text.as_bytes()).unwrap();
    assert!(!has_secret(&shown), "{text}\n  {}", shown.escape_ascii());
    let shown = std::str::from_utf8(&shown).expect("no character is cut");
    let mut rest = shown;
    for statement in kept {
        let at = rest.find(statement).unwrap_or_else(|| panic!("{statement} is not in {shown}"));
        rest = &rest[at + statement.len()..];
    }
    assert_eq!(masked(shown.as_bytes()).unwrap(), shown.as_bytes());
}

fn filled(template: &str, spaces: &[&str], input: &mut Input) -> String {
    let mut text = String::new();
    for c in template.chars() {
        match c {
            '_' => text.push_str(input.one_of(spaces)),
            '?' => text.push_str(input.one_of(STRINGS)),
            '!' if input.flag() => text.push_str(input.one_of(NAMES)),
            '!' => text.push_str(input.one_of(STRINGS)),
            c => text.push(c),
        }
    }
    text
}
