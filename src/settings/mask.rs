//! Hides passwords in connection texts, for everything that people may read.
//!
//! Works by permission: what is not known to be harmless becomes `***`. A malformed text may therefore lose more
//! than its password; it never keeps it.

/// Connection parameters whose value may be shown.
const HARMLESS: &[&str] = &[
    "application_name",
    "channel_binding",
    "connect_timeout",
    "dbname",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "load_balance_hosts",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

const HIDDEN: &str = "***";

/// Returns a connection URL or `key=value` text with its password, and any parameter that might be one, as `***`.
///
/// Control characters are escaped, so that the result is safe on a terminal and on one line.
pub fn mask_url(text: &str) -> String {
    let masked = match text.split_once("://") {
        Some((scheme, rest)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) => mask_rest(scheme, rest),
        _ => mask_pairs(text),
    };
    masked.unwrap_or_else(|| HIDDEN.to_owned()).escape_debug().to_string()
}

/// Masks any text in which somebody may have put a connection URL by mistake; other text is only escaped.
pub(super) fn mask_stray(text: &str) -> String {
    let suspicious = text.contains("://") || text.to_ascii_lowercase().contains("password=");
    if suspicious { mask_url(text) } else { text.escape_debug().to_string() }
}

fn mask_rest(scheme: &str, rest: &str) -> Option<String> {
    // An unescaped '@' or '/' may be part of the password, so everything before the last '@' is credentials. With a
    // '?' before that '@' nobody can tell which of the two belongs to a password.
    if rest.rfind('@').is_some_and(|at| rest[..at].contains('?')) {
        return Some(format!("{scheme}://{HIDDEN}"));
    }
    let (credentials, place) = match rest.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, rest),
    };
    let user = match credentials {
        None => String::new(),
        Some(credentials) => match credentials.split_once(':') {
            Some((user, _)) if is_plain(user) => format!("{user}:{HIDDEN}@"),
            None if is_plain(credentials) => format!("{credentials}@"),
            _ => format!("{HIDDEN}@"),
        },
    };
    // Without an '@' what looks like a port may be the password of a URL that was cut.
    if credentials.is_none() && !has_numeric_ports(place) {
        return Some(format!("{scheme}://{HIDDEN}"));
    }
    let (place, parameters) = place.split_once('?').map_or((place, None), |(place, p)| (place, Some(p)));
    let parameters = parameters.map(|parameters| {
        let shown = parameters.split('&').map(|pair| match pair.split_once('=') {
            Some((key, value)) if HARMLESS.contains(&key) => format!("{key}={value}"),
            Some((key, _)) if is_plain(key) => format!("{key}={HIDDEN}"),
            _ => HIDDEN.to_owned(),
        });
        format!("?{}", shown.collect::<Vec<_>>().join("&"))
    });
    Some(format!("{scheme}://{user}{place}{}", parameters.unwrap_or_default()))
}

fn has_numeric_ports(place: &str) -> bool {
    let hosts = place.split(['/', '?']).next().unwrap_or_default();
    hosts.split(',').all(|host| {
        let after_address = host.rsplit_once(']').map_or(host, |(_, after)| after);
        after_address.split_once(':').is_none_or(|(_, port)| port.chars().all(|c| c.is_ascii_digit()))
    })
}

/// Whether a user's or a parameter's name is free of characters that would make it part of something else.
fn is_plain(name: &str) -> bool {
    name.chars().all(|c| c.is_alphanumeric() || "_-.%".contains(c))
}

/// Masks libpq's `key = 'value'` form; `None` if the text is not of that form.
fn mask_pairs(text: &str) -> Option<String> {
    let mut shown = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest.split_once('=')?;
        let key = key.trim_end();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            return None;
        }
        let (value, after) = split_value(after.trim_start())?;
        shown.push(format!("{key}={}", if HARMLESS.contains(&key) { value } else { HIDDEN }));
        rest = after.trim_start();
    }
    (!shown.is_empty()).then(|| shown.join(" "))
}

/// Splits off one value, quoted or bare, in which a backslash escapes the next character.
fn split_value(text: &str) -> Option<(&str, &str)> {
    let quoted = text.starts_with('\'');
    let mut characters = text.char_indices().skip(usize::from(quoted));
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => {
                characters.next()?;
            }
            '\'' if quoted => return Some(text.split_at(at + 1)),
            c if !quoted && c.is_whitespace() => return Some(text.split_at(at)),
            _ => {}
        }
    }
    (!quoted).then_some((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_keep_what_helps_and_lose_the_password() {
        for (url, masked) in [
            ("postgres://app:s3cret@db:5432/jobs", "postgres://app:***@db:5432/jobs"),
            ("postgresql://app@db/jobs?sslmode=require", "postgresql://app@db/jobs?sslmode=require"),
            ("postgres://db/jobs?user=app&password=s3cret", "postgres://db/jobs?user=app&password=***"),
            ("postgres://app:p@ss/word@db/jobs", "postgres://app:***@db/jobs"),
            ("postgres://app:p?ssword@db/jobs", "postgres://***"),
            ("postgres://db/jobs?password=pass@word", "postgres://***"),
            ("postgres://db/jobs?pass%77ord=s3cret", "postgres://db/jobs?pass%77ord=***"),
            ("postgres://:s3cret@db/jobs", "postgres://:***@db/jobs"),
            ("postgres:///jobs", "postgres:///jobs"),
            ("postgres://a:1,[::1]:2/jobs", "postgres://a:1,[::1]:2/jobs"),
            ("postgres://app:s3cret", "postgres://***"),
        ] {
            assert_eq!(mask_url(url), masked);
        }
    }

    #[test]
    fn pairs_keep_what_helps_and_lose_the_password() {
        for (text, masked) in [
            ("host=db password=s3cret dbname=jobs", "host=db password=*** dbname=jobs"),
            ("host=db password = 's3 cr\\'et' user=app", "host=db password=*** user=app"),
            ("password=s3\\ cret host=db", "password=*** host=db"),
            ("options='-c a=b' host=db", "options=*** host=db"),
        ] {
            assert_eq!(mask_url(text).replace("\\'", "'"), masked);
        }
    }

    #[test]
    fn what_is_not_understood_is_hidden_whole() {
        for text in ["s3cret", "host=db password='s3cret", "PASSWORD=s3cret", "a b=s3cret", ""] {
            assert_eq!(mask_url(text), "***");
        }
    }

    #[test]
    fn stray_connection_texts_are_masked_and_plain_text_is_not() {
        assert_eq!(mask_stray("human\n"), "human\\n");
        assert_eq!(mask_stray("postgres://a:s3cret@b"), "postgres://a:***@b");
        assert_eq!(mask_stray("host=b password=s3cret"), "host=b password=***");
    }

    proptest! {
        #[test]
        fn no_password_survives(password in "[!-~]{0,8}S3CRET[!-~]{0,8}", tail in "[a-z0-9@/?=&:%]{0,20}") {
            let in_authority = format!("postgres://app:{password}@db/{tail}");
            let in_query = format!("postgres://db/x?password={password}");
            for url in [in_authority, in_query] {
                // Inside a query an '&' ends the password by the URL's own rules.
                if !(url.contains("?password") && password.contains('&')) {
                    prop_assert!(!mask_url(&url).contains("S3CRET"), "{}", mask_url(&url));
                }
            }
        }
    }
}
