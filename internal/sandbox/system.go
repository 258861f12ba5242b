package sandbox

import (
	"path/filepath"
	"strings"
)

// SystemReads returns what programs need to read in order to run: the system's
// directories, those of the search path (the value of PATH), and the few files
// of /etc that hold no secret. Ceiling.Resolve drops what does not exist.
func SystemReads(searchPath string) []string {
	dirs := []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix",
		"/System", "/Library", // macOS
		"/etc/alternatives", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/fonts",
		"/etc/hosts", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime",
		"/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/pki/tls/certs",
		"/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
		"/etc/timezone",
	}
	for _, d := range filepath.SplitList(searchPath) {
		if filepath.IsAbs(d) {
			dirs = append(dirs, filepath.Clean(d))
		}
	}
	return dirs
}

// ToolchainReads returns the module caches and version managers in a user's home
// directory and where the environment says they are. None of them holds
// credentials: where a tool keeps those beside its cache, only the cache is
// named. Ceiling.Resolve drops what does not exist.
func ToolchainReads(home string, getenv func(string) string) []string {
	var dirs []string
	fromEnv := func(key, below string) {
		for _, d := range filepath.SplitList(getenv(key)) {
			if filepath.IsAbs(d) {
				dirs = append(dirs, filepath.Join(d, below))
			}
		}
	}
	fromEnv("GOROOT", "")
	fromEnv("GOMODCACHE", "")
	fromEnv("GOPATH", "pkg/mod")
	fromEnv("GOPATH", "bin")
	fromEnv("CARGO_HOME", "registry")
	fromEnv("CARGO_HOME", "git")
	fromEnv("CARGO_HOME", "bin")
	fromEnv("RUSTUP_HOME", "toolchains")
	fromEnv("NVM_DIR", "versions")
	fromEnv("PYENV_ROOT", "versions")
	fromEnv("JAVA_HOME", "")
	fromEnv("VIRTUAL_ENV", "")
	fromEnv("CONDA_PREFIX", "")
	if filepath.IsAbs(home) {
		for _, d := range strings.Fields(`
			go/pkg/mod go/bin sdk
			.cargo/registry .cargo/git .cargo/bin .rustup/toolchains
			.nvm/versions .local/share/fnm .fnm .volta/tools .volta/bin .npm/_cacache .bun/bin .deno/bin .local/share/pnpm
			.pyenv/versions .pyenv/shims .pyenv/bin .pyenv/libexec .local/share/uv/python .local/share/uv/tools .local/pipx/venvs .local/share/pipx/venvs
			.local/lib .local/bin miniconda3 anaconda3 miniforge3
			.rbenv/versions .rbenv/shims .gem/ruby
			.sdkman/candidates .m2/repository .gradle/caches/modules-2 .gradle/wrapper/dists
			.asdf/installs .asdf/shims .local/share/mise/installs .local/share/mise/shims
			.ghcup/bin .ghcup/ghc .opam .elan/toolchains .linuxbrew
		`) {
			dirs = append(dirs, filepath.Join(home, filepath.FromSlash(d)))
		}
	}
	return dirs
}
