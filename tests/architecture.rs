//! The shape of the source, kept by a test: which layer may know which, how long a file may be, and words that belong
//! to one folder only (docs/ARCHITECTURE.md, "Layers").

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use headcount::runtime::meters::METERS;

/// A folder (or a file at the top), and its level: a file imports from lower levels and from its own folder only.
const LAYERS: &[(&str, u32)] = &[
    ("domain", 0),
    ("runtime", 1),
    ("store", 1),
    ("adapters/redis", 2),
    ("adapters/embedded", 2),
    ("adapters/sql", 2),
    ("local", 2),
    ("service", 3),
    ("api", 4),
    ("jobs", 4),
    ("config", 5),
    ("exact", 5),
    ("ask", 5),
    ("audit_command", 6),
    ("reconcile_command", 6),
    ("app", 6),
    ("cli", 7),
    ("main", 8),
];

const LINES_MAX: usize = 400;
const FUNCTION_LINES_MAX: usize = 70;

struct Source {
    /// `local/cell` for `src/local/cell.rs`; `local` for `src/local/mod.rs`.
    module: String,
    text: String,
}

#[test]
fn imports_point_down() {
    let mut wrong = Vec::new();
    for source in sources() {
        let Some((layer, level)) = layer_of(&source.module) else { continue };
        for import in imports(&source) {
            let Some((target, target_level)) = layer_of(&import) else { continue };
            if target != layer && target_level >= level {
                wrong.push(format!("{} imports {import}", source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "these imports do not point down:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_has_a_layer() {
    let known = ["lib", "adapters"];
    let strays: Vec<String> = sources()
        .into_iter()
        .map(|source| source.module)
        .filter(|module| layer_of(module).is_none() && !known.contains(&module.as_str()))
        .collect();
    assert!(strays.is_empty(), "files outside every layer: {strays:?}");
}

#[test]
fn no_file_knows_itself_through_others() {
    let sources = sources();
    let modules: BTreeSet<&str> = sources.iter().map(|source| source.module.as_str()).collect();
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for source in &sources {
        for import in imports(source) {
            // `local/cell/Cell` names an item of the longest module that is a prefix of it.
            let target = modules.iter().filter(|module| is_prefix(module, &import)).max_by_key(|module| module.len());
            if let Some(target) = target.filter(|target| **target != source.module) {
                edges.entry(&source.module).or_default().insert(target);
            }
        }
    }
    // Take away files that import nothing that is left, until nothing more can be taken: what stays is a cycle.
    let mut left: BTreeSet<&str> = modules;
    loop {
        let free: Vec<&str> = left
            .iter()
            .copied()
            .filter(|module| edges.get(module).is_none_or(|targets| targets.is_disjoint(&left)))
            .collect();
        if free.is_empty() {
            break;
        }
        left.retain(|module| !free.contains(module));
    }
    assert!(left.is_empty(), "these files import each other in a circle, or import from one: {left:?}");
}

#[test]
fn files_and_functions_stay_readable() {
    let mut wrong = Vec::new();
    for source in sources() {
        let production = source.text.split("#[cfg(test)]").next().unwrap_or("");
        let lines = production.lines().count();
        if lines > LINES_MAX {
            wrong.push(format!("{}: {lines} lines, at most {LINES_MAX}", source.module));
        }
        wrong.extend(long_functions(production).map(|text| format!("{}: {text}", source.module)));
    }
    assert!(wrong.is_empty(), "too long to read:\n{}", wrong.join("\n"));
}

#[test]
fn words_of_one_folder_stay_there() {
    // The word, where it may stand, and why.
    let rules: &[(&str, &[&str], &str)] = &[
        ("fred::", &["adapters/redis/node"], "only node.rs names the client, so that another can take its place"),
        ("redb::", &["adapters/embedded"], "only the embedded store knows its library"),
        ("sqlx::", &["adapters/sql"], "only the ledger's adapter knows its library"),
        ("EVALSHA", &["adapters/redis"], "scripts are the Redis adapter's business"),
        ("HEADCOUNT_", &["config", "cli", "app"], "below the root nobody knows the names of variables"),
        ("axum::", &["api"], "HTTP stays in the HTTP layer"),
        ("unimplemented!(", &[], "no stubs"),
        ("todo!(", &[], "no stubs"),
    ];
    let mut wrong = Vec::new();
    for source in sources() {
        for (word, homes, reason) in rules {
            let at_home = homes.iter().any(|home| is_prefix(home, &source.module));
            let code = source.text.lines().filter(|line| !line.trim_start().starts_with("//"));
            if !at_home && code.clone().any(|line| line.contains(word)) {
                wrong.push(format!("{} says {word}: {reason}", source.module));
            }
        }
    }
    assert!(wrong.is_empty(), "words out of place:\n{}", wrong.join("\n"));
}

#[test]
fn every_metric_is_described_and_documented() {
    let mut used = BTreeSet::new();
    for source in sources() {
        for kind in ["counter!(", "gauge!(", "histogram!("] {
            for (at, _) in source.text.match_indices(kind) {
                let argument = source.text[at + kind.len()..].trim_start();
                if let Some(name) = argument.strip_prefix('"').and_then(|rest| rest.split('"').next()) {
                    used.insert(name.to_owned());
                }
            }
        }
    }
    let described: BTreeSet<String> = METERS.iter().map(|meter| meter.name.to_owned()).collect();
    assert_eq!(used, described, "what the code counts, and the table in runtime/meters.rs");
    let told = read(&root().join("docs/OPERATIONS.md"));
    for name in described {
        assert!(told.contains(&format!("`{name}`")), "docs/OPERATIONS.md does not tell of {name}");
    }
}

#[test]
fn settings_named_outside_the_code_exist() {
    let known: BTreeSet<&str> = headcount::config::variables::VARIABLES.iter().map(|variable| variable.name).collect();
    let mut places = files(&root().join("docs"), "md");
    places.extend(files(&root().join("k8s"), "md"));
    places.extend(files(&root().join("k8s"), "env"));
    places.extend(files(&root().join("k8s"), "yaml"));
    places.extend(["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    for place in places {
        let text = read(&place);
        for (at, _) in text.match_indices("HEADCOUNT_") {
            let name: String = text[at..].chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
            let name = name.trim_end_matches('_');
            // Kubernetes' own injections are told of as what they are.
            let foreign = ["HEADCOUNT", "HEADCOUNT_PORT", "HEADCOUNT_BENCH_SECONDS"].contains(&name);
            // A secret may also be given as a file.
            let exists = known.contains(name) || name.strip_suffix("_FILE").is_some_and(|name| known.contains(name));
            assert!(exists || foreign, "{}: {name} is no setting", place.display());
        }
    }
}

#[test]
fn scripts_say_their_contract() {
    let folder = root().join("lua");
    let mut seen = 0;
    for path in files(&folder, "lua") {
        let text = read(&path);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(text.starts_with("--[["), "lua/{name} does not begin with its contract");
        let header = text.split("]]").next().unwrap_or("");
        for word in ["KEYS", "ARGV", "eply"] {
            assert!(header.contains(word), "lua/{name}: the header does not say {word}");
        }
        seen += 1;
    }
    assert!(seen > 0, "no scripts under lua/");
}

#[test]
fn parents_declare_and_do_not_re_export() {
    for source in sources() {
        let re_export = source.text.lines().find(|line| line.trim_start().starts_with("pub use "));
        assert!(re_export.is_none(), "{} re-exports: {}", source.module, re_export.unwrap_or(""));
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    files(&src, "rs")
        .into_iter()
        .map(|path| {
            let relative = path.strip_prefix(&src).unwrap().with_extension("");
            let module = relative.to_string_lossy().trim_end_matches("/mod").to_owned();
            Source { module, text: read(&path) }
        })
        .collect()
}

fn layer_of(module: &str) -> Option<(&'static str, u32)> {
    LAYERS.iter().copied().find(|(layer, _)| is_prefix(layer, module))
}

fn is_prefix(prefix: &str, module: &str) -> bool {
    module.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What a file imports, as module paths with slashes; `use crate::a::{b, c::D}` gives `a/b` and `a/c/D`.
fn imports(source: &Source) -> Vec<String> {
    let production = source.text.split("#[cfg(test)]").next().unwrap_or("");
    let code: String =
        production.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let mut found = Vec::new();
    let roots = [
        ("crate::", String::new()),
        ("headcount::", String::new()),
        ("super::", parent(&source.module)),
        ("self::", source.module.clone()),
    ];
    for (start, root) in roots {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            expand(&code[at + start.len()..], &root, &mut found);
        }
    }
    found
}

/// The module that `super` means: a `mod.rs` names its own folder's parent.
fn parent(module: &str) -> String {
    module.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned())
}

/// Reads one path, with a group at its end if it has one, and adds every module path it names.
fn expand(text: &str, root: &str, found: &mut Vec<String>) {
    let path: String = text.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':')).collect();
    let base = join(root, path.trim_end_matches(':'));
    let rest = &text[path.len()..];
    if !path.is_empty() && !path.ends_with("::") || !rest.starts_with('{') {
        found.push(base);
        return;
    }
    let mut depth = 0;
    let mut item = String::new();
    for c in rest.chars() {
        match c {
            '{' if depth == 0 => depth = 1,
            '}' if depth == 1 => break,
            ',' if depth == 1 => {
                expand(item.trim(), &base, found);
                item.clear();
            }
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                item.push(c);
            }
        }
    }
    if !item.trim().is_empty() {
        expand(item.trim(), &base, found);
    }
}

fn join(root: &str, path: &str) -> String {
    let path = path.replace("::", "/");
    if root.is_empty() { path } else { format!("{root}/{path}") }
}

/// Functions longer than allowed: from the line with `fn` to the closing brace of the same indent.
fn long_functions(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let is_function =
            ["fn ", "pub fn ", "async fn ", "pub async fn ", "pub(super) fn ", "const fn ", "pub const fn "]
                .iter()
                .any(|head| code.starts_with(head));
        if !is_function || line.trim_end().ends_with(';') {
            continue;
        }
        let close = format!("{}}}", &line[..line.len() - code.len()]);
        let length = lines[start..].iter().position(|line| *line == close).map_or(0, |end| end + 1);
        if length > FUNCTION_LINES_MAX {
            long.push(format!("line {} is a function of {length} lines, at most {FUNCTION_LINES_MAX}", start + 1));
        }
    }
    long.into_iter()
}
