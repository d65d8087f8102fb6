//! Completions of `zabkeeper` and its client for bash, zsh and fish.
//!
//! Owns the scripts. Must not ask a server: the shell of the client itself completes paths.

use std::fmt::Write as _;

use super::table::COMMANDS;

/// The commands beside `cli`.
const PROGRAM: &str = "cli log server initialize cleanup check container";

/// The words behind `server`.
const SERVER: &str = "start start-foreground stop restart status print-cmd version --config";

const OPTIONS: &str = "-server -timeout -r -waitforconnection -client-configuration --json --help";

/// The script for a shell; `None` for another shell.
pub(crate) fn script(shell: &str) -> Option<String> {
    match shell {
        "bash" => Some(bash()),
        "zsh" => Some(format!("autoload -U +X bashcompinit && bashcompinit\n{}", bash())),
        "fish" => Some(fish()),
        _ => None,
    }
}

fn bash() -> String {
    let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    let mut cases = String::new();
    for command in COMMANDS.iter().filter(|command| !command.options.is_empty()) {
        writeln!(cases, "        {}) words=\"{}\" ;;", command.name, options(command.options))
            .expect("a text takes all");
    }
    format!(
        "_zabkeeper() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} word i words command=
    if [[ ${{COMP_WORDS[1]}} != cli ]]; then
        words=
        [[ $COMP_CWORD == 1 ]] && words='{PROGRAM} --help --version'
        [[ $COMP_CWORD == 2 && ${{COMP_WORDS[1]}} == server ]] && words='{SERVER}'
        [[ $COMP_CWORD == 2 && ${{COMP_WORDS[1]}} == log ]] && words='inspect cut compare'
        COMPREPLY=($(compgen -W \"$words\" -- \"$current\") $(compgen -f -- \"$current\"))
        return
    fi
    for ((i = 2; i < COMP_CWORD; i++)); do
        word=${{COMP_WORDS[i]}}
        case $word in
        -server | --server | -timeout | --timeout | -client-configuration | --client-configuration) i=$((i + 1)) ;;
        -*) ;;
        *) command=$word && break ;;
        esac
    done
    case $command in
        '') words='{OPTIONS} {names}' ;;
{cases}        *) words= ;;
    esac
    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))
}}
complete -F _zabkeeper zabkeeper
",
        names = names.join(" "),
    )
}

fn fish() -> String {
    let names: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    let names = names.join(" ");
    let mut script = format!(
        "complete -c zabkeeper -n __fish_use_subcommand -a '{PROGRAM}'
complete -c zabkeeper -n '__fish_seen_subcommand_from server' -a '{SERVER}'
complete -c zabkeeper -f -n '__fish_seen_subcommand_from cli; and not __fish_seen_subcommand_from {names}' -a '{OPTIONS} {names}'
"
    );
    for command in COMMANDS {
        for option in command.options.iter().filter(|option| option.name != "?") {
            let hyphens = if option.name.len() > 1 { "--" } else { "-" };
            writeln!(
                script,
                "complete -c zabkeeper -f -n '__fish_seen_subcommand_from cli; and \
                 __fish_seen_subcommand_from {}' -a '{hyphens}{}' -d '{}'",
                command.name, option.name, option.about
            )
            .expect("a text takes all");
        }
    }
    script
}

fn options(options: &[super::arguments::Opt]) -> String {
    let names = options.iter().filter(|option| option.name != "?").map(|option| {
        let hyphens = if option.name.len() > 1 { "--" } else { "-" };
        format!("{hyphens}{}", option.name)
    });
    names.collect::<Vec<_>>().join(" ")
}
