//! What is around every page.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

/// The frame of a page.
pub(super) struct Frame<'a> {
    /// Its title.
    pub title: &'a str,
    /// Where its changes are told.
    pub live: Option<&'a str>,
    /// The server's clock, for running times.
    pub now: Option<Timestamp>,
    /// Is there a token to be entered?
    pub steerable: bool,
    /// Its address, for the navigation.
    pub here: &'a str,
}

impl Frame<'_> {
    /// The whole document.
    pub(super) fn around(&self, body: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Yardmaster" }
                    link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                    link rel="stylesheet" href="/assets/page.css";
                    script src="/assets/page.js" defer {}
                }
                body data-live=[self.live] data-now=[self.now.map(|now| now.as_millisecond())] {
                    a.skip href="#main" { "Skip to the content" }
                    header.top {
                        a.brand href="/" { "Yardmaster" }
                        nav aria-label="Main" {
                            (link("/", "Jobs", self.here))
                            (link("/nodes", "Nodes", self.here))
                        }
                        @if self.live.is_some() {
                            span.live role="status" title="Changes appear by themselves" { "connecting" }
                        }
                        @if self.steerable {
                            button.quiet type="button" data-token { "Enter token" }
                        }
                    }
                    main id="main" { (body) }
                    dialog.token aria-labelledby="token-title" {
                        form method="dialog" {
                            h2 id="token-title" { "Token" }
                            p { "Steering needs the token of this service. It is kept in this tab only." }
                            input type="password" name="token" autocomplete="off" aria-label="Token" required;
                            menu {
                                button type="submit" value="cancel" formnovalidate { "Cancel" }
                                button.primary type="submit" value="keep" { "Keep" }
                            }
                        }
                    }
                    p.toast role="status" aria-live="polite" hidden {}
                }
            }
        }
    }
}

fn link(to: &str, text: &str, here: &str) -> Markup {
    html! { a href=(to) aria-current=[(to == here).then_some("page")] { (text) } }
}
