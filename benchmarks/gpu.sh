#!/usr/bin/env bash
# Measure all that matters on one GPU, unattended and without a network, in 9 minutes.
#
#     benchmarks/gpu.sh [--platform gpu|cpu] [--tiny] [--only NAME,NAME...] [OUT]
#
# Writes results.json, results.md and log.txt into OUT, or $OUT. Each script has a time
# limit, and its row says if it failed; then the last exit code is 1. $PYTHON is the
# interpreter (python3); if it lacks packages, wheels in .whl/ are installed beside it.
# --tiny tries the scripts: models so small that the figures say nothing. --only runs
# some: on an H100 all take longer than 9 minutes, and the last have none left.
set -uo pipefail

command="benchmarks/gpu.sh $*"
platform='' tiny='' only='' out=${OUT:-}
while (($#)); do
  case $1 in
    --platform) platform=${2:-} && shift ;;
    --tiny) tiny=--tiny ;;
    --only) only=${2:-} && shift ;;
    -*) echo "$1: expected --platform, --tiny, --only or a folder" >&2 && exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
if [[ -z $out ]]; then
  echo "no folder for the results: give one, or set \$OUT" >&2 && exit 2
fi
case $platform in
  '') ;;
  gpu) export JAX_PLATFORMS=cuda ;;
  cpu) export JAX_PLATFORMS=cpu ;;
  *) echo "--platform $platform: expected gpu or cpu" >&2 && exit 2 ;;
esac

mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 2
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
python=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
# What one script has compiled the next one need not; nothing of earlier runs counts.
export JAX_COMPILATION_CACHE_DIR="$logs/cache"
# After so many seconds no script goes on.
whole=510

wheels=(.whl/*.whl)
if [[ -e ${wheels[0]} ]] && ! "$python" -c 'import jaxtrain.cli, jaxtrain.trainer.train' 2>/dev/null; then
  "$python" -m pip install --quiet --no-index --no-deps --no-compile \
    --target "$logs/site" "${wheels[@]}" >&2
  export PYTHONPATH="$PYTHONPATH:$logs/site"
fi

wanted() { [[ -z $only || ,$only, == *,$1,* ]]; }

# run NAME SECONDS WORD...: run a Python program; what it prints is kept.
run() {
  local name=$1 limit=$2 start=$SECONDS code
  shift 2
  if ! wanted "$name"; then return; fi
  if ((limit > whole - SECONDS)); then limit=$((whole - SECONDS)); fi
  if ((limit < 5)); then
    echo "124 0" >"$logs/$name.status" && : >"$logs/$name.out" && return
  fi
  echo "$name: at most $limit s" >&2
  timeout --kill-after=5 "$limit" "$python" "$@" >"$logs/$name.out" 2>&1
  code=$?
  echo "$code $((SECONDS - start))" >"$logs/$name.status"
  echo "$name: exit code $code after $((SECONDS - start)) s" >&2
}

skip() { ! wanted "$1" || echo "skipped $2" >"$logs/$1.status" && : >"$logs/$1.out"; }

recipe=(configs/imagenet_resnet50.py --data.batch-size 128 --parallel.xla-flags default)
torch=(--only resnet50 --policies bf16 --compile --pairs 7)
precisions=() remats=()
if [[ $platform == cpu ]]; then
  recipe=(configs/cifar10_resnet18.py --data.batch-size 64 --precision fp32)
  torch=(--only resnet18 --policies fp32 bf16 --pairs 7)
fi
if [[ -n $tiny ]]; then
  recipe=(configs/digits.py --model.width 0.125)
  torch=(--only lenet --policies fp32 --pairs 2)
  precisions=(--precisions fp32) remats=(--remat none full)
fi

# Numbers before speed; what took longest on an H100 is last.
run norms 120 benchmarks/norms.py $tiny
if "$python" -c 'import torch' 2>/dev/null; then
  run peer_torch 180 benchmarks/peer_torch.py "${torch[@]}"
else
  skip peer_torch "PyTorch is not installed"
fi
run plan 120 main.py plan --target here --check --out "$logs/plan" --config "${recipe[@]}"
run roofline 120 benchmarks/roofline.py "${precisions[@]}" $tiny
run loop 60 benchmarks/loop.py $tiny
run memory 120 benchmarks/memory.py "${remats[@]}" $tiny
run checkpoint 120 benchmarks/checkpoint.py $tiny
run compile 120 benchmarks/compile.py --pairs 1 $tiny

for name in "$logs"/*.out; do
  echo "== $(basename "$name" .out)" && cat "$name"
done >"$out/log.txt"
"$python" benchmarks/gpu_table.py "$logs" "$out" "$command"
