// weft bench: measures speed, compared with this machine's limits.
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/system.h"
#include "cli/bench/bench.h"
#include "cli/commands/command.h"
#include "cli/terminal/output.h"
#include "compute/backend.h"
#include "compute/kernels/isa.h"

namespace weft::cli {
namespace {

std::string NameOfComputing(const Bench& bench) {
  const std::string backend(bench.model->backend_name());
  return ChoosesIsa(bench) ? StrCat(backend, " ", NameOf(PreferredIsa())) : backend;
}

// The works and the machine, before the first result.
void PrintHeader(const Bench& bench) {
  if (bench.flags.json) return;
  PrintLine(
      StrCat(Printable(bench.model->name(), 60), ", context ", bench.model->context_tokens()));
  PrintLine(StrCat("loaded ", bench.model->loading()));
  PrintLine(StrCat(bench.options.n_threads, bench.options.n_threads == 1 ? " thread" : " threads",
                   ", ", NameOfComputing(bench), ", KV cache ", bench.flags.model.kv));
  char numbers[120];
  std::snprintf(numbers, sizeof(numbers), "what computes reads %.1f GB/s, multiplies %.0f GMAC/s",
                bench.limits.read_bytes_per_s / 1e9, bench.limits.int8_macs_per_s / 1e9);
  std::string text = numbers;
  if (bench.limits.float_macs_per_s > 0) {
    std::snprintf(numbers, sizeof(numbers), ", floats %.0f", bench.limits.float_macs_per_s / 1e9);
    text += numbers;
  }
  PrintLine(text);
  std::fflush(stdout);
}

// The device's, or what the processor is found to do.
MachineLimits LimitsOf(const Model& model, int n_threads) {
  const auto of_device = model.backend().LimitsOf(model.weights()->device());
  if (of_device) return {of_device->read_bytes_per_s, of_device->int8_macs_per_s};
  ShowProgress("measuring the machine");
  const MachineLimits limits = MeasureMachineLimits(n_threads);
  EndProgress();
  ForgetPeakMemory();  // that measurement's memory is not the model's
  return limits;
}

Status RunBench(const BenchFlags& flags) {
  Bench bench;
  bench.flags = flags;
  WEFT_ASSIGN_OR_RETURN(bench.options, FlaggedEngineOptions(flags.model));
  if (bench.options.n_threads == 0) {
    bench.options.n_threads = static_cast<int>(std::thread::hardware_concurrency());
  }
  WEFT_ASSIGN_OR_RETURN(bench.model, LoadFlaggedModel(flags.model));
  WEFT_ASSIGN_OR_RETURN(bench.options.draft_model, LoadFlaggedDraft(flags.model, *bench.model));
  bench.load_peak_bytes = PeakMemoryBytes();
  bench.limits = LimitsOf(*bench.model, bench.options.n_threads);
  bench.cost = CostOf(bench.model->file(), bench.model->spec());
  PrintHeader(bench);
  if (flags.burst) WEFT_RETURN_IF_ERROR(BenchBurst(bench));
  if (flags.fanout) WEFT_RETURN_IF_ERROR(BenchFanout(bench));
  if (flags.intruder > 0) WEFT_RETURN_IF_ERROR(BenchRhythm(bench));
  if (flags.burst || flags.fanout || flags.intruder > 0) return FlushStdout();
  if (flags.prompt > 0) WEFT_RETURN_IF_ERROR(BenchPrompt(bench));
  for (const int n : flags.sessions) {
    if (flags.decode > 0) WEFT_RETURN_IF_ERROR(BenchDecode(bench, n));
  }
  return FlushStdout();
}

}  // namespace

CommandBody MakeBenchCommand(CLI::App* app) {
  auto flags = std::make_shared<BenchFlags>();
  AddModelFlag(app, &flags->model);
  AddComputeFlags(app, &flags->model);
  AddSpeculationFlags(app, &flags->model);
  AddContextFlag(app, &flags->model);
  const auto tokens = CLI::Range(int64_t{0}, int64_t{1} << 24);
  app->add_option("--sessions", flags->sessions, "Numbers of sessions that decode together")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  app->add_option("--prompt", flags->prompt, "Length of the measured prompt in tokens (0: none)")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--decode", flags->decode, "Tokens to decode per session (0: none)")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--depth", flags->depth, "Tokens of context before decoding is measured")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--shared", flags->shared, "How many of those tokens all sessions share")
      ->check(tokens)
      ->capture_default_str();
  app->add_option("--repeat", flags->repeat, "Runs per measurement; the median is shown")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_flag("--burst", flags->burst,
                "16 requests of 130 tokens, 4 at a time, 80 ms apart, 64 tokens each");
  app->add_flag("--fanout", flags->fanout,
                "8 requests that share 1,300 tokens, 4 at a time, 32 tokens each");
  app->add_option("--intruder", flags->intruder,
                  "Measure the longest gap between two tokens during the prefill of N tokens")
      ->check(tokens);
  app->add_flag("--json", flags->json, "One JSON object per measurement");
  app->footer(
      "\nTwo limits bind: how fast the machine reads, and how fast it multiplies (8-bit integers;\n"
      "floats in attention). They are measured at the start; each line says which one binds, and\n"
      "what part of it is reached.\n\n"
      "Example:\n"
      "  weft bench -m model.gguf --sessions 1,8 --threads 2");
  return [flags] {
    const Status status = RunBench(*flags);
    EndProgress();
    return status;
  };
}

}  // namespace weft::cli
