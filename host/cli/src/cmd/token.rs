//! `dstack token`: extra tokens of the user, with a scope and an end.

use clap::Subcommand;
use dstack_api::tokens::{CreateTokenRequest, DeleteTokenRequest, NewToken, Scope, TokenInfo};
use jiff::{SignedDuration, Timestamp};

use crate::cx::{Cx, ProjectOption};
use crate::error::CliError;
use crate::view::values::ago;

/// Extra tokens, for scripts and other machines
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List your extra tokens
    #[command(alias = "ls")]
    List(ListArgs),
    /// Make a token; it is shown this once
    #[command(
        after_help = "Scopes:\n  read                   look at everything you see, except credentials and secrets\n  runs                   also plan, apply, stop and delete runs\n  services:RUN           call this service\n  project:NAME:ROLE      in this project what the role may do (user, manager, admin)\n\nExample:\n  dstack token create ci --scope runs --expires 30d"
    )]
    Create(CreateArgs),
    /// End a token at once
    #[command(visible_alias = "destroy")]
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// A name for it
    name: String,
    /// What it is good for; may be repeated
    #[arg(long, required = true, value_name = "SCOPE", value_parser = scope)]
    scope: Vec<String>,
    /// When it ends: a duration such as 12h or 30d, or a time; default: never
    #[arg(long, value_name = "WHEN", value_parser = expires)]
    expires: Option<When>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// The token's name
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// A time, or a duration from now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    At(Timestamp),
    In(SignedDuration),
}

fn scope(text: &str) -> Result<String, String> {
    text.parse::<Scope>().map(|_| text.to_owned())
}

fn expires(text: &str) -> Result<When, String> {
    if let Ok(time) = text.parse() {
        return Ok(When::At(time));
    }
    let wrong = || "give a duration such as 12h or 30d, or a time such as 2027-01-31T12:00:00Z";
    let split = text
        .len()
        .checked_sub(1)
        .and_then(|at| text.split_at_checked(at));
    let (number, unit) = split.ok_or_else(wrong)?;
    let seconds = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(wrong().to_owned()),
    };
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let seconds = number.checked_mul(seconds).filter(|seconds| *seconds > 0);
    Ok(When::In(SignedDuration::from_secs(
        seconds.ok_or_else(wrong)?,
    )))
}

pub(crate) fn run(args: Args, cx: &mut Cx<'_>) -> Result<(), CliError> {
    match args.command.unwrap_or(Command::List(args.list)) {
        Command::List(args) => list(&args, cx),
        Command::Create(args) => create(args, cx),
        Command::Delete(args) => {
            let here = cx.here(args.project.project.as_deref())?;
            if !args.yes && !cx.ui.confirm(&format!("End the token {}?", args.name))? {
                return cx.ui.line("Exiting...");
            }
            let order = DeleteTokenRequest { name: args.name };
            here.client.post::<()>("/api/x/tokens/delete", &order)?;
            cx.ui.line("OK")
        }
    }
}

fn list(args: &ListArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let tokens: Vec<TokenInfo> = here.client.ask("/api/x/tokens/list")?;
    if args.json {
        return cx.ui.json(&tokens);
    }
    let now = cx.now();
    let end = |token: &TokenInfo| match token.expires_at {
        None => "never".to_owned(),
        Some(at) if at <= now => "ended".to_owned(),
        Some(at) => at.strftime("%Y-%m-%d %H:%M UTC").to_string(),
    };
    let rows: Vec<Vec<String>> = tokens
        .iter()
        .map(|token| {
            vec![
                token.name.clone(),
                token.scopes.join(", "),
                ago(token.created_at, now),
                end(token),
            ]
        })
        .collect();
    let table = cx
        .ui
        .table(&["NAME", "SCOPES", "CREATED", "EXPIRES"], &rows);
    cx.ui.line(table)
}

fn create(args: CreateArgs, cx: &mut Cx<'_>) -> Result<(), CliError> {
    let here = cx.here(args.project.project.as_deref())?;
    let expires_at = match args.expires {
        None => None,
        Some(When::At(time)) => Some(time),
        Some(When::In(duration)) => {
            let end = cx.now().checked_add(duration);
            Some(end.map_err(|error| CliError::message(error.to_string()))?)
        }
    };
    let order = CreateTokenRequest {
        name: args.name,
        scopes: args.scope,
        expires_at,
    };
    let made: NewToken = here.client.post("/api/x/tokens/create", &order)?;
    if args.json {
        return cx.ui.json(&made);
    }
    // Alone on its line, so that a script takes it as it is.
    cx.ui.line(made.token.expose())
}

#[cfg(test)]
mod tests {
    use super::{When, expires, scope};
    use jiff::SignedDuration;

    #[test]
    fn ends_are_durations_or_times() {
        assert_eq!(expires("2h"), Ok(When::In(SignedDuration::from_hours(2))));
        assert!(matches!(expires("2027-01-31T12:00:00Z"), Ok(When::At(_))));
        for wrong in ["", "2", "0d", "-1d", "2y", "ä", "99999999999999999w"] {
            assert!(expires(wrong).is_err(), "{wrong}");
        }
        assert!(scope("project:main:user").is_ok() && scope("all").is_err());
    }
}
