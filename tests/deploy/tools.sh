# Sourced: `tools NAME..` installs tools of the checks and puts them on the path.
# Each lies in ${XDG_CACHE_HOME:-$HOME/.cache}/prorata/<name>-<version>.

cache="${XDG_CACHE_HOME:-$HOME/.cache}/prorata"
declare -A versions=(
    [actionlint]=1.7.7 [compose-go]=2.16.2 [dockerfile-utils]=0.16.3 [helm]=3.22.0 [promtool]=0.316.0
)

# tool <name> <command..>: installs a tool by a command that is given a folder as its last argument. Once for
# each name; built aside and moved when whole.
tool() {
    local name="$1" target="$cache/$1" temporary
    shift
    [ -d "$target" ] && return
    echo "$name: installing"
    mkdir -p "$cache"
    temporary="$(mktemp -d "$cache/$name-XXXXXX")"
    if ! "$@" "$temporary"; then
        rm -rf "$temporary"
        return 1
    fi
    mv -T "$temporary" "$target" 2>/dev/null || rm -rf "$temporary"
}

# Without the tag, most of promtool would be its discovery of targets.
go_tool() { GOBIN="$2" CGO_ENABLED=0 go install -trimpath -ldflags "-s -w" -tags remove_all_sd "$1"; }
npm_tool() { npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$2" "$1"; }
compose_tool() {
    go_tool "$1" "$2"
    mv "$2/cmd" "$2/compose-go"
}

tools() {
    local name version folder
    for name in "$@"; do
        version="${versions[$name]}"
        folder="$cache/$name-$version"
        case "$name" in
            actionlint)
                tool "$name-$version" go_tool "github.com/rhysd/actionlint/cmd/actionlint@v$version"
                ;;
            helm) tool "$name-$version" go_tool "helm.sh/helm/v3/cmd/helm@v$version" ;;
            promtool)
                tool "$name-$version" go_tool "github.com/prometheus/prometheus/cmd/promtool@v$version"
                ;;
            compose-go)
                tool "$name-$version" compose_tool "github.com/compose-spec/compose-go/v2/cmd@v$version"
                ;;
            dockerfile-utils)
                tool "$name-$version" npm_tool "$name@$version"
                folder="$folder/node_modules/.bin"
                ;;
        esac
        export PATH="$folder:$PATH"
    done
}
