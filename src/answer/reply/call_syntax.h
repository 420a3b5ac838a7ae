// Readers for calls in replies, one for each syntax.
//
// A reader takes the text of a call from ReplyIo and emits the call. True: it was one, and nothing
// is held any more. False: the text continued in a way that no call does; a call already emitted is
// completed, and the held text was not part of it, so the caller makes it visible. The byte that
// did not fit is not taken.
//
// Tasks of one parser; see answer/reply/task.h.
#ifndef WEFT_ANSWER_REPLY_CALL_SYNTAX_H_
#define WEFT_ANSWER_REPLY_CALL_SYNTAX_H_

#include <string>
#include <string_view>

#include "answer/reply/call_writer.h"
#include "answer/reply/io.h"
#include "answer/reply/parameter_types.h"
#include "answer/reply/task.h"

namespace weft {

// --- parts ----------------------------------------------------------------------------

// Takes white space; always true.
ReplyTask<bool> TakeSpace(ReplyIo& io);
// Takes exactly this text.
ReplyTask<bool> TakeText(ReplyIo& io, std::string_view text);
// Takes what precedes an element within brackets: white space, and a comma before all but the
// first. `more` becomes false where the closer, taken too, stands instead of an element; behind a
// comma only if `may_trail`.
ReplyTask<bool> TakeToElement(ReplyIo& io, char closer, bool first, bool may_trail, bool* more);
// Takes everything before the first of `ends`, at most `max_bytes`; leaves the end itself.
ReplyTask<bool> TakeBefore(ReplyIo& io, std::string_view ends, size_t max_bytes, std::string* text);
// Takes a word of letters, digits and +-._ into `json` if it is a JSON number, true, false or null;
// accepts Python's spellings of these.
ReplyTask<bool> TakeJsonScalar(ReplyIo& io, std::string* json);
// Takes a quoted string and unescapes it.
ReplyTask<bool> TakeJsonString(ReplyIo& io, std::string* text);
// Copies a JSON value into the arguments. Repairs common mistakes of models: escapes control
// characters in strings, takes unknown escapes literally, drops superfluous commas, accepts doubled
// braces around an object, and accepts other quotes around strings: ', ` or """.
ReplyTask<bool> CopyJsonValue(ReplyIo& io, CallWriter& call);
// Copies the arguments' object.
ReplyTask<bool> CopyJsonObject(ReplyIo& io, CallWriter& call);

// --- calls ----------------------------------------------------------------------------

// {"name": "f", "arguments": {...}}; accepts "tool_name" and "parameters" too. A call without
// arguments gets {}, unless `needs_arguments`.
ReplyTask<bool> ReadJsonCall(ReplyIo& io, bool needs_arguments);
// Copies a text with Python escapes into the arguments, up to as many closing quotes. Its opening
// quotes were taken and its string was started.
ReplyTask<bool> CopyTextUpTo(ReplyIo& io, CallWriter& call, int quote, int n_quotes);
// Copies a Python literal into the arguments, converted to JSON.
ReplyTask<bool> CopyPythonValue(ReplyIo& io, CallWriter& call);
// f(a=1, b='x'), with Python literals.
ReplyTask<bool> ReadPythonCall(ReplyIo& io);
// call:f{a:1,b:<|"|>x<|"|>}
ReplyTask<bool> ReadGemmaCall(ReplyIo& io);
// DeepSeek's, after the marker of a call.
ReplyTask<bool> ReadDeepSeekCall(ReplyIo& io);
// Kimi's, after the marker of a call.
ReplyTask<bool> ReadKimiCall(ReplyIo& io);

// NAME, then parameters between tags: the text before and after each.
struct TagSyntax {
  std::string_view function_open;  // before the name
  // Its first byte cannot occur in a name. Empty: the name ends at white space or a tag.
  std::string_view name_end;
  std::string_view index_open, index_close;  // then, around a call's number; empty: none
  std::string_view parameter_open;           // before a parameter's name
  std::string_view key_end;                  // after it; its first byte cannot occur in the name
  // May follow: before a word and a quotation mark. Of a string, the word is string_word.
  std::string_view string_mark;
  std::string_view string_word = "true";
  std::string_view value_open;       // then, after white space; empty: the value follows directly
  std::string_view parameter_close;  // after the value
  std::string_view function_close;
  std::string_view quote_open, quote_close;  // may surround a string; empty: nothing does
  // Line breaks next to the tags are part of a value.
  bool exact_values = false;
  // parameter_close is followed by the parameter's name and key_end again. Members of objects and,
  // as kListItem, of lists are written like parameters.
  bool nested = false;
};
inline constexpr std::string_view kListItem = "item";
inline constexpr TagSyntax kFunctionTags = {.function_open = "<function=",
                                            .name_end = ">",
                                            .parameter_open = "<parameter=",
                                            .key_end = ">",
                                            .parameter_close = "</parameter>",
                                            .function_close = "</function>"};
inline constexpr TagSyntax kInvokeTags = {.function_open = "<invoke name=\"",
                                          .name_end = "\">",
                                          .parameter_open = "<parameter name=\"",
                                          .key_end = "\">",
                                          .parameter_close = "</parameter>",
                                          .function_close = "</invoke>"};

// REQUIRES: the function_open tag was taken. Values get the types of the tool's schema.
ReplyTask<bool> ReadTaggedCall(ReplyIo& io, const TagSyntax& syntax, const ParameterTypes& types);
// Reads what follows the name of `function`: its parameters and the function_close tag.
ReplyTask<bool> ReadTaggedParameters(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                                     const ParameterTypes& types, std::string_view function);
// The same for nested tags.
ReplyTask<bool> ReadNestedParameters(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                                     const ParameterTypes& types, std::string_view function);

}  // namespace weft

#endif  // WEFT_ANSWER_REPLY_CALL_SYNTAX_H_
