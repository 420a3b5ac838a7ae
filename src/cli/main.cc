// weft: many conversations on one language model.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/strings.h"
#include "base/terminal.h"
#include "cli/commands/command.h"
#include "cli/help/usage.h"
#include "cli/help/version.h"

namespace weft::cli {
namespace {

constexpr int kOk = 0;
constexpr int kWrongUsage = 2;

// A command's status; running out of memory is an error like any other.
Status RunBody(const CommandBody& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory; use a smaller model or input");
  }
}

// Whether a word is more likely a question for the model than a command or a file.
bool IsQuestion(std::string_view word) {
  if (word.find(' ') != word.npos) return true;
  return !word.starts_with('-') && word.find_first_of("./") == word.npos &&
         word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") != word.npos;
}

// Whether an option in the place of a command belongs to "weft run": a model or a prompt.
bool IsOptionOfRun(std::string_view word) {
  constexpr std::string_view kOptions[] = {"-m",   "--model",   "-hf", "-hfr",
                                           "--hf", "--hf-repo", "-p",  "--prompt"};
  const std::string_view name = word.substr(0, word.find('='));
  return std::find(std::begin(kOptions), std::end(kOptions), name) != std::end(kOptions);
}

// What people type from other programs.
std::string CommandMeant(const std::string& word) {
  if (word == "ls") return "list";
  return word == "version" ? "--version" : word;
}

// Normalises the command line: "weft help run" is "weft run --help", weft "Why?" is weft run
// "Why?", as is weft -m MODEL "Why?", and "-hf", which the parser would read as "-h" and "-f", is
// "--hf", as "-md" is "--draft-model", "-ngl" "--gpu-layers", "-cmoe" "--cpu-moe" and "-ncmoe"
// "--n-cpu-moe".
std::vector<std::string> MeantArguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  if (arguments.empty()) return {"--help"};
  arguments[0] = CommandMeant(arguments[0]);
  if (arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.push_back("--help");
  } else if (IsQuestion(arguments[0]) || IsOptionOfRun(arguments[0])) {
    arguments.insert(arguments.begin(), "run");
  }
  const auto options_end = std::find(arguments.begin(), arguments.end(), "--");
  std::replace_if(
      arguments.begin(), options_end,
      [](const std::string& argument) { return argument == "-hf" || argument == "-hfr"; }, "--hf");
  constexpr std::pair<const char*, const char*> kOtherNames[] = {{"-md", "--draft-model"},
                                                                 {"-ngl", "--gpu-layers"},
                                                                 {"-cmoe", "--cpu-moe"},
                                                                 {"-ncmoe", "--n-cpu-moe"}};
  for (const auto& [other, name] : kOtherNames) {
    std::replace(arguments.begin(), options_end, std::string(other), std::string(name));
  }
  return arguments;
}

// Removes the words after "--", if the command passes them on to another program: the parser would
// change some of them.
std::vector<std::string> TakePassedOn(std::vector<std::string>* arguments) {
  const bool passes =
      std::any_of(Commands().begin(), Commands().end(), [arguments](const Command& command) {
        return command.passes_words_on && command.name == arguments->front();
      });
  const auto end = std::find(arguments->begin(), arguments->end(), "--");
  if (!passes || end == arguments->end()) return {};
  std::vector<std::string> words(end + 1, arguments->end());
  arguments->erase(end, arguments->end());
  return words;
}

// The reader of stderr may have stopped reading, e.g. a hung log reader: do not wait longer for it
// at exit.
constexpr std::chrono::milliseconds kPatience{1000};

// In lines that fit a terminal.
void PrintError(const std::string& sentence) {
  const auto window = WindowOf(STDERR_FILENO);
  std::fprintf(stderr, "%s\n", (window ? Fill(sentence, window->columns) : sentence).c_str());
}

void PrintLastWord(std::string_view message) {
  pollfd stderr_end = {.fd = STDERR_FILENO, .events = POLLOUT};
  if (poll(&stderr_end, 1, static_cast<int>(kPatience.count())) != 1) return;
  // The message may quote a file, e.g. a template; do not let a terminal interpret that.
  constexpr size_t kMaxBytes = 16 << 10;
  PrintError(StrCat("weft: ", Printable(message, kMaxBytes)));
}

int Main(int argc, char** argv) {
  CLI::App app("Weft hosts many conversations on one language model.\n", "weft");
  app.formatter(std::make_shared<HelpFormatter>());  // before the commands, which inherit it
  app.set_version_flag("-v,--version", std::string("weft ") + kVersion);
  app.require_subcommand(0, 1);  // so that an unknown one is reported; absence is handled below
  app.footer(
      "\n'weft COMMAND --help' explains a command. Exit codes: 0 success, 1 failure with a\n"
      "sentence on stderr, 2 wrong usage.");
  std::vector<std::pair<CLI::App*, CommandBody>> bodies;
  for (const Command& command : Commands()) {
    CLI::App* const sub = app.add_subcommand(command.name, command.summary);
    bodies.emplace_back(sub, command.make(sub));
  }
  std::vector<std::string> arguments = MeantArguments(argc, argv);
  if (argc > 0) TheInvocation().program = argv[0];
  TheInvocation().passed_on = TakePassedOn(&arguments);
  std::reverse(arguments.begin(), arguments.end());  // in the parser's order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    // The parser reports help and version as "errors" with code 0.
    if (error.get_exit_code() == 0) return app.exit(error);
    PrintError(UsageSentence(app, error));
    return kWrongUsage;
  }
  for (const auto& [sub, body] : bodies) {
    if (!sub->parsed()) continue;
    const Status status = RunBody(body);
    (void)FlushLog(kPatience);
    if (status.ok()) return kOk;
    if (!Message(status).empty()) PrintLastWord(Message(status));
    return ExitCodeOf(status);
  }
  std::fputs("weft: a command is required; 'weft --help' lists them\n", stderr);
  return kWrongUsage;
}

}  // namespace
}  // namespace weft::cli

int main(int argc, char** argv) {
  // If the reader goes away, writing fails instead of killing the process.
  std::signal(SIGPIPE, SIG_IGN);
  return weft::cli::Main(argc, argv);
}
