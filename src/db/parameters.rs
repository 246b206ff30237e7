//! Takes the parameters of TLS out of a connection string: the driver's parser knows too few of them.

use percent_encoding::percent_decode_str;

/// libpq's parameters that are ours to read.
const OURS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// A connection string without the parameters of TLS, and those, decoded, in their order. A string that is not well
/// formed comes back as it is: the driver's parser says what is wrong with it.
pub(super) fn split(text: &str) -> (String, Vec<(String, String)>) {
    let split = match text.find("://") {
        Some(at) if text[..at].chars().all(|c| c.is_ascii_alphanumeric()) => split_url(text),
        _ => split_pairs(text),
    };
    split.unwrap_or_else(|| (text.to_owned(), Vec::new()))
}

fn is_ours(key: &str) -> bool {
    OURS.contains(&key)
}

fn split_url(text: &str) -> Option<(String, Vec<(String, String)>)> {
    // As the driver does: all before the first '@' is user and password.
    let place = text.find('@').map_or(0, |at| at + 1);
    let query = place + text[place..].find('?')?;
    let mut ours = Vec::new();
    let mut others = Vec::new();
    for pair in text[query + 1..].split('&') {
        match pair.split_once('=').filter(|(key, _)| is_ours(key)) {
            Some((key, value)) => {
                let value = percent_decode_str(value).decode_utf8().ok()?;
                ours.push((key.to_owned(), value.into_owned()));
            }
            None => others.push(pair),
        }
    }
    let gap = if others.is_empty() { "" } else { "?" };
    Some((format!("{}{gap}{}", &text[..query], others.join("&")), ours))
}

fn split_pairs(text: &str) -> Option<(String, Vec<(String, String)>)> {
    let (mut rest, mut ours, mut others) = (text.trim_start(), Vec::new(), Vec::new());
    while !rest.is_empty() {
        let start = rest;
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_end();
        let (value, after) = read_value(after.trim_start())?;
        if is_ours(key) {
            ours.push((key.to_owned(), value));
        } else {
            others.push(start[..start.len() - after.len()].trim_end());
        }
        rest = after.trim_start();
    }
    Some((others.join(" "), ours))
}

/// Reads one value, quoted or bare, in which a backslash escapes the next character.
fn read_value(text: &str) -> Option<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.push(chars.next()?.1),
            '\'' if quoted => return Some((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Some((value, &text[at..])),
            c => value.push(c),
        }
    }
    (!quoted).then_some((value, ""))
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn what_is_ours_is_taken_out_and_the_rest_stays() {
        for (text, rest, ours) in [
            (
                "postgres://u:p@h/d?sslmode=verify-full&a=b&sslrootcert=%2Fx%20y",
                "postgres://u:p@h/d?a=b",
                &["verify-full", "/x y"][..],
            ),
            ("postgres://h/d?sslmode=require", "postgres://h/d", &["require"]),
            ("postgres://h/d", "postgres://h/d", &[]),
            (
                "host=h sslmode = 'verify-ca' password='a b' sslkey=/a\\ b dbname=d",
                "host=h password='a b' dbname=d",
                &["verify-ca", "/a b"],
            ),
            ("host=h password='sslmode=disable'", "host=h password='sslmode=disable'", &[]),
            ("host=h password=my s3cret", "host=h password=my s3cret", &[]),
        ] {
            let (left, found) = split(text);
            let values: Vec<&str> = found.iter().map(|(_, value)| value.as_str()).collect();
            assert_eq!((left.as_str(), values.as_slice()), (rest, ours));
        }
    }
}
