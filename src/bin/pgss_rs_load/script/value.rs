//! Values of variables and expressions, and what may be done with them.

use std::fmt;

/// What an expression gives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Null,
    Boolean(bool),
    Int(i64),
    Double(f64),
}

pub type Result<T> = std::result::Result<T, String>;

impl Value {
    /// Of a variable's text, such as a result's or one from the command line.
    pub fn from_text(name: &str, text: &str) -> Result<Self> {
        let is = |word: &str| text.eq_ignore_ascii_case(word);
        let begins = |word: &str| {
            !text.is_empty() && word.get(..text.len()).is_some_and(|start| start.eq_ignore_ascii_case(text))
        };
        if is("null") {
            return Ok(Value::Null);
        }
        if begins("true") || begins("yes") || is("on") {
            return Ok(Value::Boolean(true));
        }
        if begins("false") || begins("no") || is("off") || is("of") {
            return Ok(Value::Boolean(false));
        }
        let number = text.trim_matches(super::is_space);
        let digits = number.strip_prefix(['-', '+']).unwrap_or(number);
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            return number
                .parse()
                .map(Value::Int)
                .map_err(|_| format!("the value of {name} is beyond 64 bits: {text}"));
        }
        let looks_like_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        match number.parse() {
            Ok(number) if looks_like_number => Ok(Value::Double(number)),
            _ => Err(format!("the value of {name} is neither a number nor a truth value: \"{text}\"")),
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Boolean(_) => "boolean",
            Value::Int(_) => "int",
            Value::Double(_) => "double",
        }
    }

    pub fn boolean(self) -> Result<bool> {
        match self {
            Value::Boolean(value) => Ok(value),
            other => Err(format!("a truth value is needed, not {}", other.kind())),
        }
    }

    /// As a condition: numbers other than 0 are true, null is false.
    pub fn truth(self) -> bool {
        match self {
            Value::Null => false,
            Value::Boolean(value) => value,
            Value::Int(value) => value != 0,
            Value::Double(value) => value != 0.0,
        }
    }

    /// Doubles are rounded, halves to the even neighbour.
    pub fn int(self) -> Result<i64> {
        /// 2^63: the first double that is too large.
        const END: f64 = 9_223_372_036_854_775_808.0;
        match self {
            Value::Int(value) => Ok(value),
            Value::Double(value) => {
                let rounded = value.round_ties_even();
                if (-END..END).contains(&rounded) {
                    Ok(rounded as i64)
                } else {
                    Err(format!("{value} is beyond 64 bits"))
                }
            }
            other => Err(format!("a number is needed, not {}", other.kind())),
        }
    }

    pub fn double(self) -> Result<f64> {
        match self {
            Value::Int(value) => Ok(value as f64),
            Value::Double(value) => Ok(value),
            other => Err(format!("a number is needed, not {}", other.kind())),
        }
    }

    pub fn is_double(self) -> bool {
        matches!(self, Value::Double(_))
    }
}

impl fmt::Display for Value {
    /// As it is put into a statement.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::Int(value) => write!(f, "{value}"),
            Value::Double(value) => f.write_str(&shortened(*value)),
        }
    }
}

/// With 15 significant digits and no trailing zeros, as C's `%.15g` shows it.
fn shortened(value: f64) -> String {
    const DIGITS: i32 = 15;
    if !value.is_finite() {
        return if value.is_nan() {
            "nan".to_owned()
        } else if value > 0.0 {
            "inf".to_owned()
        } else {
            "-inf".to_owned()
        };
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..DIGITS).contains(&exponent) {
        return without_zeros(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_are_shown_as_by_pgbench() {
        let shown = [5.0, 1e20, 0.1 + 0.2, 2f64.sqrt(), 1e-5, 123_456_789_012_345_680.0, -0.5, 1e15, 0.0]
            .map(shortened);
        assert_eq!(
            shown,
            ["5", "1e+20", "0.3", "1.4142135623731", "1e-05", "1.23456789012346e+17", "-0.5", "1e+15", "0"]
        );
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(shortened), ["nan", "inf", "-inf"]);
    }

    #[test]
    fn texts_become_the_values_they_look_like() {
        let value = |text| Value::from_text("v", text);
        assert_eq!(value("NULL"), Ok(Value::Null));
        for (text, truth) in
            [("t", true), ("YES", true), ("on", true), ("n", false), ("of", false), ("False", false)]
        {
            assert_eq!(value(text), Ok(Value::Boolean(truth)), "{text}");
        }
        assert_eq!(value("-12"), Ok(Value::Int(-12)));
        assert_eq!(value("1.5e3"), Ok(Value::Double(1500.0)));
        for text in ["", "o", "x1", "9223372036854775808", "1 2", "infinity"] {
            assert!(value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn only_numbers_are_numbers() {
        assert_eq!(Value::Double(9.5).int(), Ok(10));
        assert_eq!(Value::Double(8.5).int(), Ok(8));
        assert!(Value::Double(9.3e18).int().is_err() && Value::Double(f64::NAN).int().is_err());
        assert!(Value::Boolean(true).int().is_err() && Value::Int(1).boolean().is_err());
        assert!(Value::Int(1).truth() && !Value::Null.truth() && !Value::Double(0.0).truth());
    }
}
