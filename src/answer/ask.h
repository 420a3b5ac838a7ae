// What somebody wants answered, whichever door it came through: the input, the form of the answer,
// how it is sampled and ends, and who asks. Each door reads its own fields into one of these.
//
// A value; one thread.
#ifndef WEFT_ANSWER_ASK_H_
#define WEFT_ANSWER_ASK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "answer/asked_picture.h"
#include "answer/chat/chat_format.h"
#include "answer/prompt_marks.h"
#include "answer/prompt_rows.h"
#include "answer/prompt_trail.h"
#include "answer/thinking.h"
#include "base/status.h"
#include "weft/constraint.h"
#include "weft/options.h"

namespace weft::serve {

// The required form of an answer.
struct AnswerRule {
  ConstraintSpec spec;
  std::string field;  // the request field it came from, for errors
};

// Which tools an answer may call, and whether it must.
struct ToolChoice {
  bool calls_allowed = true;  // false: call markup stays text
  bool must_call = false;
  bool strict = false;       // some tool requires its calls to fit its schema
  bool single_call = false;  // at most one call per answer
  // The grammars of texts that functions take, by the names the model knows.
  std::map<std::string, std::string> grammars = {};
  // The functions that may be called, by the names the model knows; empty: all offered ones.
  std::vector<std::string> only;

  // Whether calls must have a form, or must be there.
  bool insists() const { return must_call || strict || !only.empty(); }
};

struct SessionChoice {
  std::string name;  // empty: an anonymous session
  // The turn runs on this session or not at all. Otherwise the name is only a preference: if the
  // session is busy, for example, an anonymous one is used.
  bool required = false;
};

struct Ask {
  enum class Input {
    kConversation,  // `chat`
    kRendered,      // the same, rendered by the asker: the tokens of `turn`
    kPrompt,        // the tokens or parts of `turn`
  };
  Input input = Input::kConversation;

  // Sessions and prefixes of one domain are invisible to others.
  std::string domain = {};
  SessionChoice session = {};
  // How the answer is sampled and ends, how many there are, and whose turn it is.
  TurnOptions turn = {};
  // An earlier turn of the same request was taken, so that a drained server takes this one too.
  bool is_begun = false;
  bool tells_cache_report = false;  // in the usage
  bool keeps_context = false;       // for Answer::context

  // --- kConversation and kRendered -------------------------------------------------
  // The required form of the answer, after its thought.
  std::optional<AnswerRule> answer = {};
  ThoughtLimit thought = {};

  // --- kPrompt with pictures only --------------------------------------------------
  std::string text = {};  // with their marks, instead of the tokens and parts of `turn`

  // --- kRendered only --------------------------------------------------------------
  bool ends_in_thought = false;  // the prompt does

  // --- kConversation only ----------------------------------------------------------
  ChatRequest chat = {};
  // Input embeddings in place of texts of the conversation.
  std::vector<EmbeddedRows> rows = {};
  // Each becomes an entry of `rows` before the prompt is made; also for kPrompt.
  std::vector<AskedPicture> pictures = {};
  // Tokens before the conversation, for example an earlier answer's context.
  std::vector<int32_t> before = {};
  std::vector<PromptMark> marks = {};
  ClientList list = {};  // where the client has the conversation's messages
  ToolChoice tool_choice = {};
  // The answer is text as the model writes it, as for the other inputs: nothing is split from it.
  bool as_written = false;
  bool separate_reasoning = true;
  bool show_reasoning = true;
  std::string call_id_prefix = "call_";
};

// Limits that no real conversation reaches: each item costs the template time.
inline constexpr size_t kMaxMessages = 20'000;
inline constexpr size_t kMaxTools = 1024;
Status CheckCounts(const Conversation& conversation);

}  // namespace weft::serve

#endif  // WEFT_ANSWER_ASK_H_
