//! pgbench's expressions: read once, evaluated for each transaction.
//!
//! Precedence, from the loosest: OR; AND; NOT; IS, ISNULL, NOTNULL; comparisons; bits (`| # & << >>` alike, and `~`);
//! `+ -`; `* / %`; signs.

use rand::rngs::Xoshiro256PlusPlus;

use super::random;
use super::value::{Result, Value};
use super::{is_space, leading_name};

/// Limits of an expression, so that reading and evaluating it need a bounded stack.
const MAX_TOKENS: usize = 2000;
const MAX_DEPTH: u32 = 100;

#[derive(Debug, PartialEq)]
pub enum Expression {
    Constant(Value),
    Variable(String),
    Call(Function, Vec<Expression>),
    And(Box<[Expression; 2]>),
    Or(Box<[Expression; 2]>),
    /// Conditions with what they lead to, and what else.
    Case(Vec<(Expression, Expression)>, Option<Box<Expression>>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Function {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    Not,
    Is,
    Absolute,
    Debug,
    Double,
    Exp,
    Greatest,
    HashFnv1a,
    HashMurmur2,
    Int,
    Least,
    Logarithm,
    Permute,
    Power,
    Random,
    RandomExponential,
    RandomGaussian,
    RandomZipfian,
    SquareRoot,
}

/// Function names and how many arguments each takes, at least and at most.
const FUNCTIONS: [(&str, Function, usize, usize); 20] = {
    use Function::*;
    const MANY: usize = usize::MAX;
    [
        ("abs", Absolute, 1, 1),
        ("debug", Debug, 1, 1),
        ("double", Double, 1, 1),
        ("exp", Exp, 1, 1),
        ("greatest", Greatest, 1, MANY),
        ("hash", HashMurmur2, 1, 2),
        ("hash_fnv1a", HashFnv1a, 1, 2),
        ("hash_murmur2", HashMurmur2, 1, 2),
        ("int", Int, 1, 1),
        ("least", Least, 1, MANY),
        ("ln", Logarithm, 1, 1),
        ("mod", Remainder, 2, 2),
        ("permute", Permute, 2, 3),
        ("pow", Power, 2, 2),
        ("power", Power, 2, 2),
        ("random", Random, 2, 2),
        ("random_exponential", RandomExponential, 3, 3),
        ("random_gaussian", RandomGaussian, 3, 3),
        ("random_zipfian", RandomZipfian, 3, 3),
        ("sqrt", SquareRoot, 1, 1),
    ]
};

/// What hashes and permutations take where no seed is given.
pub const DEFAULT_SEED: &str = "default_seed";

/// What an expression is evaluated in.
pub trait Scope {
    fn variable(&self, name: &str) -> Result<Value>;
    fn rng(&mut self) -> &mut Xoshiro256PlusPlus;
}

impl Expression {
    /// The error says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self> {
        let tokens = tokens(text)?;
        if tokens.len() > MAX_TOKENS {
            return Err(format!("an expression may have no more than {MAX_TOKENS} words"));
        }
        let mut parser = Parser { tokens: &tokens, next: 0, depth: 0 };
        let expression = parser.expression(Level::Or)?;
        match parser.peek() {
            None => Ok(expression),
            Some(token) => Err(format!("an operator is expected, not {token}")),
        }
    }

    pub fn evaluate(&self, scope: &mut dyn Scope) -> Result<Value> {
        match self {
            Expression::Constant(value) => Ok(*value),
            Expression::Variable(name) => scope.variable(name),
            Expression::And(sides) => lazily(sides, false, scope),
            Expression::Or(sides) => lazily(sides, true, scope),
            Expression::Case(branches, otherwise) => {
                for (condition, then) in branches {
                    if condition.evaluate(scope)?.truth() {
                        return then.evaluate(scope);
                    }
                }
                otherwise.as_ref().map_or(Ok(Value::Null), |expression| expression.evaluate(scope))
            }
            Expression::Call(function, arguments) => {
                let values = arguments.iter().map(|a| a.evaluate(scope)).collect::<Result<Vec<_>>>()?;
                call(*function, &values, scope)
            }
        }
    }
}

/// AND (`decides` false) and OR (true): the left side decides alone where it can, also where it is null.
fn lazily(sides: &[Expression; 2], decides: bool, scope: &mut dyn Scope) -> Result<Value> {
    for side in sides {
        match side.evaluate(scope)? {
            Value::Null => return Ok(Value::Null),
            value if value.boolean()? == decides => return Ok(Value::Boolean(decides)),
            _ => {}
        }
    }
    Ok(Value::Boolean(!decides))
}

fn call(function: Function, values: &[Value], scope: &mut dyn Scope) -> Result<Value> {
    use Function::*;
    match (function, values) {
        (Debug, [value]) => {
            crate::error::tell(format_args!("debug: {value}"));
            return Ok(*value);
        }
        (Is, [left, right]) => return Ok(Value::Boolean(left == right)),
        _ if values.contains(&Value::Null) => return Ok(Value::Null),
        _ => {}
    }
    match (function, values) {
        (Not, [value]) => Ok(Value::Boolean(!value.boolean()?)),
        (Add | Subtract | Multiply | Divide | Equal | Unequal | Less | LessOrEqual, [left, right]) => {
            if left.is_double() || right.is_double() {
                of_doubles(function, left.double()?, right.double()?)
            } else {
                of_ints(function, left.int()?, right.int()?)
            }
        }
        (Remainder | BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight, [left, right]) => {
            of_ints(function, left.int()?, right.int()?)
        }
        (Absolute, [Value::Double(value)]) => Ok(Value::Double(value.abs())),
        (Absolute, [value]) => {
            value.int()?.checked_abs().map(Value::Int).ok_or_else(|| "abs: beyond 64 bits".to_owned())
        }
        (Int, [value]) => value.int().map(Value::Int),
        (Double, [value]) => value.double().map(Value::Double),
        (Exp, [value]) => Ok(Value::Double(value.double()?.exp())),
        (Logarithm, [value]) => Ok(Value::Double(value.double()?.ln())),
        (SquareRoot, [value]) => Ok(Value::Double(value.double()?.sqrt())),
        (Power, [base, exponent]) => Ok(Value::Double(base.double()?.powf(exponent.double()?))),
        (Least | Greatest, values) => extreme(function == Greatest, values),
        (HashFnv1a, [value, seed]) => Ok(Value::Int(random::hash_fnv1a(value.int()?, seed.int()?))),
        (HashMurmur2, [value, seed]) => Ok(Value::Int(random::hash_murmur2(value.int()?, seed.int()?))),
        (Permute, [value, size, seed]) => match size.int()? {
            size if size > 0 => Ok(Value::Int(random::permute(value.int()?, size, seed.int()?))),
            _ => Err("permute: the size must be above 0".to_owned()),
        },
        (Random | RandomExponential | RandomGaussian | RandomZipfian, [low, high, parameter @ ..]) => {
            drawn(function, low.int()?, high.int()?, parameter, scope)
        }
        _ => Err("a function was given the wrong number of arguments".to_owned()),
    }
}

fn of_doubles(function: Function, left: f64, right: f64) -> Result<Value> {
    use Function::*;
    Ok(match function {
        Add => Value::Double(left + right),
        Subtract => Value::Double(left - right),
        Multiply => Value::Double(left * right),
        Divide => Value::Double(left / right),
        Equal => Value::Boolean(left == right),
        Unequal => Value::Boolean(left != right),
        Less => Value::Boolean(left < right),
        _ => Value::Boolean(left <= right),
    })
}

fn of_ints(function: Function, left: i64, right: i64) -> Result<Value> {
    use Function::*;
    let result = match function {
        Add => left.checked_add(right),
        Subtract => left.checked_sub(right),
        Multiply => left.checked_mul(right),
        Divide | Remainder if right == 0 => return Err("division by zero".to_owned()),
        Divide => left.checked_div(right),
        Remainder => Some(left.wrapping_rem(right)),
        BitAnd => Some(left & right),
        BitOr => Some(left | right),
        BitXor => Some(left ^ right),
        // Of the distance the last six bits count, as processors do it.
        ShiftLeft => Some(left.wrapping_shl(right as u32)),
        ShiftRight => Some(left.wrapping_shr(right as u32)),
        Equal => return Ok(Value::Boolean(left == right)),
        Unequal => return Ok(Value::Boolean(left != right)),
        Less => return Ok(Value::Boolean(left < right)),
        _ => return Ok(Value::Boolean(left <= right)),
    };
    result.map(Value::Int).ok_or_else(|| "the result is beyond 64 bits".to_owned())
}

fn extreme(greatest: bool, values: &[Value]) -> Result<Value> {
    if values.iter().any(|value| value.is_double()) {
        let choose = if greatest { f64::max } else { f64::min };
        let numbers = values.iter().map(|value| value.double()).collect::<Result<Vec<_>>>()?;
        Ok(numbers.into_iter().reduce(choose).map_or(Value::Null, Value::Double))
    } else {
        let choose = if greatest { i64::max } else { i64::min };
        let numbers = values.iter().map(|value| value.int()).collect::<Result<Vec<_>>>()?;
        Ok(numbers.into_iter().reduce(choose).map_or(Value::Null, Value::Int))
    }
}

fn drawn(
    function: Function,
    low: i64,
    high: i64,
    parameter: &[Value],
    scope: &mut dyn Scope,
) -> Result<Value> {
    if low > high {
        return Err(format!("random: there is nothing between {low} and {high}"));
    }
    if high.checked_sub(low).and_then(|distance| distance.checked_add(1)).is_none() {
        return Err("random: the range is beyond 64 bits".to_owned());
    }
    let parameter = parameter.first().map_or(Ok(0.0), |value| value.double())?;
    let out_of_range =
        |name: &str, range: &str| Err(format!("{name}: the parameter must be {range}, not {parameter}"));
    let rng = scope.rng();
    Ok(Value::Int(match function {
        Function::RandomGaussian if parameter >= random::MIN_GAUSSIAN => {
            random::gaussian(rng, low, high, parameter)
        }
        Function::RandomGaussian => return out_of_range("random_gaussian", "2 or more"),
        Function::RandomExponential if parameter > 0.0 => random::exponential(rng, low, high, parameter),
        Function::RandomExponential => return out_of_range("random_exponential", "above 0"),
        Function::RandomZipfian if (random::ZIPFIAN.0..=random::ZIPFIAN.1).contains(&parameter) => {
            random::zipfian(rng, low, high, parameter)
        }
        Function::RandomZipfian => return out_of_range("random_zipfian", "from 1.001 to 1000"),
        _ => random::uniform(rng, low, high),
    }))
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(Value),
    /// 2^63: only with a minus before it.
    JustTooLarge,
    Variable(String),
    /// A keyword or a function, in lower case.
    Word(String),
    Symbol(&'static str),
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Number(value) => write!(f, "{value}"),
            Token::JustTooLarge => f.write_str("9223372036854775808"),
            Token::Variable(name) => write!(f, ":{name}"),
            Token::Word(word) => f.write_str(word),
            Token::Symbol(symbol) => f.write_str(symbol),
        }
    }
}

/// Longer ones before those they begin with.
const SYMBOLS: [&str; 20] = [
    "<<", ">>", "<=", ">=", "<>", "!=", "<", ">", "=", "+", "-", "*", "/", "%", "|", "&", "#", "~", "(", ")",
];

fn tokens(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while let Some(c) = rest.chars().next() {
        let (token, length) = match c {
            ',' => (Token::Symbol(","), 1),
            ':' => match leading_name(&rest[1..]) {
                "" => return Err("a : must be followed by a variable's name".to_owned()),
                name => (Token::Variable(name.to_owned()), 1 + name.len()),
            },
            c if c.is_ascii_digit() || c == '.' => number(rest)?,
            c if c == '_' || c.is_ascii_alphabetic() => {
                let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
                (Token::Word(rest[..end].to_ascii_lowercase()), end)
            }
            c => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => (Token::Symbol(symbol), symbol.len()),
                None => return Err(format!("the character {c:?} has no meaning here")),
            },
        };
        tokens.push(token);
        rest = rest[length..].trim_start_matches(is_space);
    }
    Ok(tokens)
}

/// The number at the start and its length.
fn number(text: &str) -> Result<(Token, usize)> {
    let digits = |from: usize| {
        let rest = &text[from..];
        from + rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())
    };
    let mut end = digits(0);
    let whole = end;
    if text[end..].starts_with('.') {
        end = digits(end + 1);
        if end == 1 {
            return Err("a lone point is no number".to_owned());
        }
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = end + 1 + usize::from(text[end + 1..].starts_with(['+', '-']));
        if digits(sign) > sign {
            end = digits(sign);
        }
    }
    let token = if end == whole {
        match text[..end].parse() {
            Ok(value) => Token::Number(Value::Int(value)),
            Err(_) if text[..end].trim_start_matches('0') == "9223372036854775808" => Token::JustTooLarge,
            Err(_) => return Err(format!("{} is beyond 64 bits", &text[..end])),
        }
    } else {
        let value = text[..end].parse().map_err(|_| format!("{} is no number", &text[..end]))?;
        Token::Number(Value::Double(value))
    };
    Ok((token, end))
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Or,
    And,
    Not,
    Is,
    Comparison,
    Bits,
    Sum,
    Product,
    Sign,
}

struct Parser<'a> {
    tokens: &'a [Token],
    next: usize,
    depth: u32,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    fn take(&mut self, wanted: &str) -> bool {
        let found = match self.peek() {
            Some(Token::Word(word)) => word == wanted,
            Some(Token::Symbol(symbol)) => *symbol == wanted,
            _ => false,
        };
        self.next += usize::from(found);
        found
    }

    fn need(&mut self, wanted: &str) -> Result<()> {
        if self.take(wanted) { Ok(()) } else { Err(format!("{wanted} is expected, {}", self.here())) }
    }

    fn here(&self) -> String {
        self.peek().map_or_else(|| "at the end".to_owned(), |token| format!("not {token}"))
    }

    /// As much as binds at least this tightly.
    fn expression(&mut self, level: Level) -> Result<Expression> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("an expression may be nested no more than {MAX_DEPTH} deep"));
        }
        let mut left = self.operand()?;
        let mut last = None;
        while let Some((operator, at)) = self.operator().filter(|(_, at)| *at >= level) {
            // These do not chain.
            if last == Some(at) && matches!(at, Level::Is | Level::Comparison) {
                return Err(format!("an operator of another kind is expected, {}", self.here()));
            }
            self.next += 1;
            left = self.applied(operator, at, left)?;
            last = Some(at);
        }
        self.depth -= 1;
        Ok(left)
    }

    fn operator(&self) -> Option<(&'static str, Level)> {
        const WORDS: [(&str, Level); 5] = [
            ("or", Level::Or),
            ("and", Level::And),
            ("is", Level::Is),
            ("isnull", Level::Is),
            ("notnull", Level::Is),
        ];
        match self.peek()? {
            Token::Word(word) => WORDS.into_iter().find(|(name, _)| name == word),
            Token::Symbol(symbol) => {
                let level = match *symbol {
                    "<" | ">" | "=" | "<=" | ">=" | "<>" | "!=" => Level::Comparison,
                    "|" | "#" | "&" | "<<" | ">>" => Level::Bits,
                    "+" | "-" => Level::Sum,
                    "*" | "/" | "%" => Level::Product,
                    _ => return None,
                };
                Some((symbol, level))
            }
            _ => None,
        }
    }

    fn applied(&mut self, operator: &str, at: Level, left: Expression) -> Result<Expression> {
        use Function::*;
        let is = |left, value| Expression::Call(Is, vec![left, Expression::Constant(value)]);
        let not = |expression| Expression::Call(Not, vec![expression]);
        let (function, tighter) = match operator {
            "isnull" => return Ok(is(left, Value::Null)),
            "notnull" => return Ok(not(is(left, Value::Null))),
            "is" => {
                let negated = self.take("not");
                let value = match () {
                    () if self.take("null") => Value::Null,
                    () if self.take("true") => Value::Boolean(true),
                    () if self.take("false") => Value::Boolean(false),
                    () => return Err(format!("null, true or false is expected, {}", self.here())),
                };
                return Ok(if negated { not(is(left, value)) } else { is(left, value) });
            }
            "or" => return Ok(Expression::Or(Box::new([left, self.expression(Level::And)?]))),
            "and" => return Ok(Expression::And(Box::new([left, self.expression(Level::Not)?]))),
            "<" | ">" => (Less, Level::Bits),
            "<=" | ">=" => (LessOrEqual, Level::Bits),
            "=" => (Equal, Level::Bits),
            "<>" | "!=" => (Unequal, Level::Bits),
            "|" => (BitOr, Level::Sum),
            "#" => (BitXor, Level::Sum),
            "&" => (BitAnd, Level::Sum),
            "<<" => (ShiftLeft, Level::Sum),
            ">>" => (ShiftRight, Level::Sum),
            "+" => (Add, Level::Product),
            "-" => (Subtract, Level::Product),
            "*" => (Multiply, Level::Sign),
            "/" => (Divide, Level::Sign),
            _ => (Remainder, Level::Sign),
        };
        let right = self.expression(tighter)?;
        let turned = at == Level::Comparison && operator.starts_with('>');
        Ok(Expression::Call(function, if turned { vec![right, left] } else { vec![left, right] }))
    }

    /// A constant, a variable, a call, something in parentheses, or one of these after a sign, `~` or NOT.
    fn operand(&mut self) -> Result<Expression> {
        let at = self.here();
        let Some(token) = self.peek().cloned() else { return Err(format!("a value is expected {at}")) };
        self.next += 1;
        let constant = |value| Ok(Expression::Constant(value));
        match token {
            Token::Number(value) => constant(value),
            Token::Variable(name) => Ok(Expression::Variable(name)),
            Token::JustTooLarge => Err("9223372036854775808 is beyond 64 bits".to_owned()),
            Token::Symbol("(") => {
                let inner = self.expression(Level::Or)?;
                self.need(")")?;
                Ok(inner)
            }
            Token::Symbol("+") => self.expression(Level::Sign),
            Token::Symbol("-") if self.peek() == Some(&Token::JustTooLarge) => {
                self.next += 1;
                constant(Value::Int(i64::MIN))
            }
            Token::Symbol("-") => {
                let operand = self.expression(Level::Sign)?;
                Ok(Expression::Call(Function::Subtract, vec![Expression::Constant(Value::Int(0)), operand]))
            }
            // It binds as loosely as the other operators on bits.
            Token::Symbol("~") => {
                let operand = self.expression(Level::Sum)?;
                Ok(Expression::Call(Function::BitXor, vec![Expression::Constant(Value::Int(-1)), operand]))
            }
            Token::Symbol(_) => Err(format!("a value is expected, {at}")),
            Token::Word(word) => match word.as_str() {
                "not" => Ok(Expression::Call(Function::Not, vec![self.expression(Level::Is)?])),
                "null" => constant(Value::Null),
                "true" => constant(Value::Boolean(true)),
                "false" => constant(Value::Boolean(false)),
                "case" => self.case(),
                "when" | "then" | "else" | "end" | "and" | "or" | "is" | "isnull" | "notnull" => {
                    Err(format!("a value is expected, {at}"))
                }
                name => self.call(name),
            },
        }
    }

    fn case(&mut self) -> Result<Expression> {
        let mut branches = Vec::new();
        while self.take("when") {
            let condition = self.expression(Level::Or)?;
            self.need("then")?;
            branches.push((condition, self.expression(Level::Or)?));
        }
        if branches.is_empty() {
            return Err(format!("when is expected, {}", self.here()));
        }
        let otherwise = if self.take("else") { Some(Box::new(self.expression(Level::Or)?)) } else { None };
        self.need("end")?;
        Ok(Expression::Case(branches, otherwise))
    }

    fn call(&mut self, name: &str) -> Result<Expression> {
        self.need("(").map_err(|e| format!("{name}: {e}"))?;
        let mut arguments = Vec::new();
        while !self.take(")") {
            if !arguments.is_empty() {
                self.need(",")?;
            }
            arguments.push(self.expression(Level::Or)?);
        }
        if name == "pi" && arguments.is_empty() {
            return Ok(Expression::Constant(Value::Double(std::f64::consts::PI)));
        }
        let Some((_, function, least, most)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            return Err(format!("there is no function {name}"));
        };
        if !(*least..=*most).contains(&arguments.len()) {
            return Err(format!("{name} does not take {} arguments", arguments.len()));
        }
        let wants_seed = matches!(function, Function::HashFnv1a | Function::HashMurmur2 | Function::Permute);
        if wants_seed && arguments.len() < *most {
            arguments.push(Expression::Variable(DEFAULT_SEED.to_owned()));
        }
        Ok(Expression::Call(*function, arguments))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    struct Fixed(Xoshiro256PlusPlus);

    impl Scope for Fixed {
        fn variable(&self, name: &str) -> Result<Value> {
            match name {
                "default_seed" => Ok(Value::Int(5432)),
                "x" => Ok(Value::Int(7)),
                _ => Err(format!("no {name}")),
            }
        }

        fn rng(&mut self) -> &mut Xoshiro256PlusPlus {
            &mut self.0
        }
    }

    fn value(text: &str) -> Result<Value> {
        Expression::parse(text)?.evaluate(&mut Fixed(Xoshiro256PlusPlus::seed_from_u64(1)))
    }

    /// What `debug` of pgbench 15 shows for these.
    #[test]
    fn values_are_those_of_pgbench() {
        for (text, shown) in [
            ("7 / 2", "3"),
            ("-7 / 2", "-3"),
            ("-7 % 5", "-2"),
            ("mod(54, 32)", "22"),
            ("5 / 2.0", "2.5"),
            ("int(5.4 + 3.8)", "9"),
            ("2 + 3 * 4 - 1", "13"),
            ("1 | 2 # 7 & 3 << 2", "0"),
            ("not 1 = 2 and 3 > 2", "true"),
            ("~ 5 + 1", "-7"),
            ("- 2 * 3", "-6"),
            ("1 is not null", "true"),
            ("null isnull", "true"),
            ("case when 1 = 2 then 5 end", "NULL"),
            ("greatest(5, 4, 3.5)", "5"),
            ("least(5, 4, 2)", "2"),
            ("power(2.0, 10)", "1024"),
            ("abs(-17)", "17"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("true or null", "true"),
            ("null and false", "NULL"),
            ("exp(1.0)", "2.71828182845905"),
            ("ln(2.718281828459045)", "1"),
            ("1 <> 2", "true"),
            ("(1 = 1) is true", "true"),
            ("double(5432)", "5432"),
            ("pi()", "3.14159265358979"),
            ("sqrt(2.0)", "1.4142135623731"),
            ("1 << 3 + 1", "16"),
            ("hash_fnv1a(5, 1)", "3232700585171816769"),
            ("hash_murmur2(5, 1)", "-498070536770548178"),
            ("hash_fnv1a(-1234567, 42)", "-9072429368528438435"),
            ("hash_murmur2(-1234567, 42)", "-1634358288568769501"),
            ("permute(0, 4, 5432)", "3"),
            ("permute(3, 1000000, 5432)", "189611"),
            ("permute(-3, 10, 7)", "3"),
            ("permute(5432, 9223372036854775807, 5432)", "3152083824927870359"),
            ("hash(10)", "-5817877081768721676"),
            ("hash(10, 5432)", "-5817877081768721676"),
        ] {
            assert_eq!(value(text).map(|v| v.to_string()), Ok(shown.to_owned()), "{text}");
        }
    }

    #[test]
    fn variables_and_keywords_in_any_case_are_known() {
        assert_eq!(value(":x * 2 BETWEEN").unwrap_err(), "an operator is expected, not between");
        assert_eq!(value("CASE WHEN :x IS NOT NULL THEN :x*2 ELSE 0 END"), Ok(Value::Int(14)));
        assert_eq!(value(":y").unwrap_err(), "no y");
    }

    #[test]
    fn what_has_no_value_is_an_error() {
        for (text, reason) in [
            ("1 / 0", "division by zero"),
            ("9223372036854775807 + 1", "beyond 64 bits"),
            ("-9223372036854775807 - 2", "beyond 64 bits"),
            ("-9223372036854775808 / -1", "beyond 64 bits"),
            ("1 + true", "a number is needed"),
            ("not 1", "a truth value is needed"),
            ("random(2, 1)", "nothing between"),
            ("random_gaussian(1, 2, 1.9)", "2 or more"),
            ("random_zipfian(1, 2, 1.0)", "from 1.001"),
            ("random_exponential(1, 2, 0)", "above 0"),
            ("random(-9223372036854775808, 9223372036854775807)", "beyond 64 bits"),
            ("permute(1, 0)", "above 0"),
        ] {
            let error = value(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert_eq!(value("-9223372036854775808 % -1"), Ok(Value::Int(0)));
    }

    #[test]
    fn what_is_no_expression_is_told_why() {
        for (text, reason) in [
            ("", "a value is expected at the end"),
            ("1 +", "a value is expected at the end"),
            ("1 2", "an operator is expected, not 2"),
            ("1 < 2 < 3", "an operator of another kind"),
            ("nosuch(1)", "there is no function nosuch"),
            ("random(1)", "does not take 1 arguments"),
            ("case 1 end", "when is expected, not 1"),
            ("9223372036854775808", "beyond 64 bits"),
            ("$1", "'$' has no meaning"),
            ("(1", ") is expected, at the end"),
            ("x", "( is expected"),
        ] {
            let error = Expression::parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
        assert!(Expression::parse(&"(".repeat(500)).unwrap_err().contains("nested"));
        assert!(Expression::parse(&format!("1{}", "+1".repeat(5_000))).unwrap_err().contains("2000"));
    }

    proptest! {
        #[test]
        fn what_is_read_can_be_evaluated(
            words in prop::collection::vec(
                prop::sample::select(vec![
                    "1", "-", "+", "*", "/", "%", "(", ")", ":x", "not", "true", "null", "2.5", "<<", "~", "=", "is", "and", "or",
                    "random(1,5)", "abs(", ",", "-9223372036854775808", "9223372036854775807", "int(1e300)", "case when", "then",
                    "end", "isnull", "least(", "permute(3,7)", "random_gaussian(1,9,3)",
                ]),
                1..12,
            )
        ) {
            if let Ok(expression) = Expression::parse(&words.join(" ")) {
                let _ = expression.evaluate(&mut Fixed(Xoshiro256PlusPlus::seed_from_u64(1)));
            }
        }
    }
}
