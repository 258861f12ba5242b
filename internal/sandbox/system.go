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
	fromEnv("RUSTUP_HOME", "settings.toml")
	fromEnv("RUSTUP_HOME", "update-hashes")
	fromEnv("NVM_DIR", "")
	fromEnv("PYENV_ROOT", "")
	fromEnv("JAVA_HOME", "")
	fromEnv("VIRTUAL_ENV", "")
	fromEnv("CONDA_PREFIX", "")
	if filepath.IsAbs(home) {
		for _, d := range strings.Fields(`
			go/pkg/mod go/bin sdk
			.cargo/registry .cargo/git .cargo/bin .rustup/toolchains .rustup/settings.toml .rustup/update-hashes
			.nvm .local/share/fnm .fnm .volta/tools .volta/bin .npm/_cacache .bun/bin .deno/bin .local/share/pnpm
			.pyenv .local/share/uv/python .local/share/uv/tools .local/pipx/venvs .local/share/pipx/venvs
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

// ToolchainEnv returns the variables by which version managers and the go command
// find a user's toolchains and downloaded modules, for commands whose home is
// another one. exists reports whether a directory is there.
func ToolchainEnv(home string, getenv func(string) string, exists func(string) bool) map[string]string {
	env := map[string]string{}
	for name, dir := range map[string]string{
		"RUSTUP_HOME": ".rustup", "PYENV_ROOT": ".pyenv", "NVM_DIR": ".nvm", "VOLTA_HOME": ".volta", "RBENV_ROOT": ".rbenv",
		"SDKMAN_DIR": ".sdkman", "ASDF_DATA_DIR": ".asdf", "MISE_DATA_DIR": ".local/share/mise",
	} {
		if set := getenv(name); filepath.IsAbs(set) {
			env[name] = set
		} else if dir = filepath.Join(home, filepath.FromSlash(dir)); exists(dir) {
			env[name] = dir
		}
	}
	// Modules that were downloaded are taken from there; they cannot be added to, so
	// that commands have a cache of their own.
	cache := getenv("GOMODCACHE")
	if cache == "" {
		path := getenv("GOPATH")
		if path == "" {
			path = filepath.Join(home, "go")
		}
		cache = filepath.Join(filepath.SplitList(path)[0], "pkg", "mod")
	}
	if download := filepath.Join(cache, "cache", "download"); exists(download) {
		next := getenv("GOPROXY")
		if next == "" {
			next = "direct"
		}
		env["GOPROXY"] = "file://" + filepath.ToSlash(download) + "," + next
	}
	return env
}
