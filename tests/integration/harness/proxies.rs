//! nginx, Envoy and Traefik in front of a shop, set up by the very files that docs/GATE.md gives its readers: only
//! addresses, the campaign, the place of the password file, and limits of time that suit a busy machine are put in.

use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use data_encoding::BASE64;
use hyper::Method;

use super::eventually;
use super::gateway::Api;
use super::process::{Process, free_port, fresh_dir};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Nginx,
    Envoy,
    Traefik,
}

/// A running proxy. Its users are those of `CUSTOMERS`; everybody's password is `secret`.
pub struct Proxy {
    pub api: Api,
    pub process: Process,
}

pub const CUSTOMERS: [&str; 12] = ["ada", "bob", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "jan", "kim", "zoe"];
/// As `htpasswd -s` writes it; all three proxies know it.
const SECRET_AS_SHA1: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

/// The `Authorization` of a customer who knows the password.
pub fn authorization(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes()))
}

impl Proxy {
    /// `path` is what the gate is asked: `/gate/tickets`.
    pub async fn start(kind: Kind, path: &str, gateway: &str, shop: &str) -> Self {
        let (dir, port) = (fresh_dir("proxy"), free_port());
        let passwords = dir.join("shop.htpasswd");
        let lines: String = CUSTOMERS.iter().map(|user| format!("{user}:{SECRET_AS_SHA1}\n")).collect();
        std::fs::write(&passwords, lines).expect("a password file");
        let put_in = |file: &str, own: &[(&str, String)]| {
            let shared = [("/gate/tickets", path.to_owned())];
            snippet(file, &[own, &shared].concat())
        };
        let passwords = passwords.display().to_string();
        let mut command = match kind {
            Kind::Nginx => {
                let server = put_in(
                    "nginx.conf",
                    &[
                        ("listen 80;", format!("listen 127.0.0.1:{port};")),
                        ("500ms", "30s".to_owned()),
                        ("/etc/nginx/shop.htpasswd", passwords),
                        ("headcount:8080", gateway.to_owned()),
                        ("shop:8000", shop.to_owned()),
                    ],
                );
                nginx(&dir, &server)
            }
            Kind::Envoy => {
                let address = |authority: &str| {
                    let (host, port) = authority.split_once(':').expect("host:port");
                    format!("{{ address: {host}, port_value: {port} }}")
                };
                let config = put_in(
                    "envoy.yaml",
                    &[
                        ("{ address: 0.0.0.0, port_value: 80 }", address(&format!("127.0.0.1:{port}"))),
                        ("/etc/envoy/shop.htpasswd", passwords),
                        ("timeout: 0.3s", "timeout: 30s".to_owned()),
                        ("{ address: headcount, port_value: 8080 }", address(gateway)),
                        ("{ address: shop, port_value: 8000 }", address(shop)),
                    ],
                );
                envoy(&dir, &config)
            }
            Kind::Traefik => {
                let config = put_in(
                    "traefik.yaml",
                    &[
                        ("/etc/traefik/shop.htpasswd", passwords),
                        ("headcount:8080", gateway.to_owned()),
                        ("shop:8000", shop.to_owned()),
                    ],
                );
                traefik(&dir, &config, port)
            }
        };
        let process = Process::start(&format!("{kind:?}").to_lowercase(), &mut command, 40);
        let mut proxy = Self { api: Api::of(&format!("127.0.0.1:{port}")), process };
        proxy.ready().await;
        proxy
    }

    /// It asks for a password: then it has read all of its configuration.
    async fn ready(&mut self) {
        let Self { api, process } = self;
        eventually("a proxy that asks for a password", async || {
            if let Some(status) = process.exited() {
                panic!("the proxy ended with {status}: {}", process.log());
            }
            api.try_send(Method::GET, "/buy", &[], Bytes::new()).await.is_ok_and(|answer| answer.status == 401)
        })
        .await;
    }
}

/// A file of docs/gate with what differs here put in; each thing must be there to be replaced.
fn snippet(file: &str, replacements: &[(&str, String)]) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/gate").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    replacements.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "docs/gate/{file} has no {from:?}");
        text.replace(from, to)
    })
}

/// One process without a master, so that killing it leaves no worker behind.
fn nginx(dir: &Path, server: &str) -> Command {
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {}/{name};\n", dir.display()))
        .collect();
    let config = format!(
        "daemon off;\nmaster_process off;\npid {0}/nginx.pid;\nerror_log stderr warn;\n\
         events {{ worker_connections 256; }}\nhttp {{\naccess_log off;\n{temp}{server}\n}}\n",
        dir.display()
    );
    let file = written(dir, "nginx.conf", &config);
    let mut command = Command::new(found(&["/usr/sbin/nginx", "/usr/local/sbin/nginx"], "nginx"));
    command.arg("-e").arg("stderr").arg("-p").arg(dir).arg("-c").arg(file);
    command
}

fn envoy(dir: &Path, config: &str) -> Command {
    const PRINT_PROGRAM: &str = "import envoy; print(envoy.__path__[0] + '/_bin/envoy')";
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/venv/bin/python3");
    let program = [own, PathBuf::from("python3")].into_iter().find_map(|python| {
        let output = Command::new(python).args(["-c", PRINT_PROGRAM]).output().ok()?;
        Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())).filter(|program| program.exists())
    });
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from("envoy")));
    // Nothing shared with an Envoy of another test.
    command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warn", "-c"]);
    command.arg(written(dir, "envoy.yaml", config));
    command
}

fn traefik(dir: &Path, config: &str, port: u16) -> Command {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/venv/bin/traefik");
    let mut command = Command::new(found(&[own], "traefik"));
    command.arg(format!("--entryPoints.web.address=127.0.0.1:{port}"));
    command.arg(format!("--providers.file.filename={}", written(dir, "traefik.yaml", config).display()));
    command.args(["--global.checkNewVersion=false", "--global.sendAnonymousUsage=false", "--log.level=INFO"]);
    command
}

fn written(dir: &Path, name: &str, text: &str) -> PathBuf {
    let file = dir.join(name);
    std::fs::write(&file, text).expect("a configuration file");
    file
}

/// The first of these files that is there, else whatever the path has.
fn found(files: &[&str], name: &str) -> PathBuf {
    files.iter().map(PathBuf::from).find(|file| file.exists()).unwrap_or_else(|| PathBuf::from(name))
}
