// How calls are written in replies: one reader for each way.
//
// A reader takes the text of a call from ReplyIo and gives the call out. True: it was
// one, and nothing is held any more. False: the text goes on in a way that no call does;
// what was given out is completed, and what is held was no part of it: the caller makes
// it visible. The byte that did not fit is not taken.
//
// Tasks of one parser; see reply_task.h.
#ifndef WEFT_REPLY_CALL_SYNTAX_H_
#define WEFT_REPLY_CALL_SYNTAX_H_

#include <string>
#include <string_view>

#include "reply/call_writer.h"
#include "reply/io.h"
#include "reply/parameter_types.h"
#include "reply/task.h"

namespace weft {

// --- parts ----------------------------------------------------------------------------

// Takes white space; true.
ReplyTask<bool> TakeSpace(ReplyIo& io);
// Takes exactly this text.
ReplyTask<bool> TakeText(ReplyIo& io, std::string_view text);
// Takes what comes before the first of `ends`, at most `max_bytes`; the end itself stays.
ReplyTask<bool> TakeBefore(ReplyIo& io, std::string_view ends, size_t max_bytes, std::string* text);
// Takes a word of letters, digits and +-._ into `json` when it is a number, true, false
// or null of JSON; Python's words for these are taken for them.
ReplyTask<bool> TakeJsonScalar(ReplyIo& io, std::string* json);
// A string in quotes, as it reads.
ReplyTask<bool> TakeJsonString(ReplyIo& io, std::string* text);
// A JSON value into the arguments. What models get wrong is mended: control characters in
// strings are escaped, escapes that JSON does not know are taken literally, a comma too
// many is left out, the braces of an object may be doubled, a text may stand between other
// quotes: ', ` or """.
ReplyTask<bool> CopyJsonValue(ReplyIo& io, CallWriter& call);
// The arguments' object.
ReplyTask<bool> CopyJsonObject(ReplyIo& io, CallWriter& call);

// --- calls ----------------------------------------------------------------------------

// {"name": "f", "arguments": {...}}; "tool_name" and "parameters" mean the same. A call without
// arguments has {}, unless `needs_arguments`.
ReplyTask<bool> ReadJsonCall(ReplyIo& io, bool needs_arguments);
// A text into the arguments whose opening quotes were taken and whose string was started, to
// as many quotes at its end; with the escapes of Python.
ReplyTask<bool> CopyTextUpTo(ReplyIo& io, CallWriter& call, int quote, int n_quotes);
// A literal of Python into the arguments, written as JSON.
ReplyTask<bool> CopyPythonValue(ReplyIo& io, CallWriter& call);
// f(a=1, b='x'), with the literals of Python.
ReplyTask<bool> ReadPythonCall(ReplyIo& io);
// call:f{a:1,b:<|"|>x<|"|>}
ReplyTask<bool> ReadGemmaCall(ReplyIo& io);

// NAME, then parameters between tags: what stands before and after each.
struct TagSyntax {
  std::string_view function_open;  // before the name
  // Its first byte cannot be in a name. Empty: the name ends at white space or a tag.
  std::string_view name_end;
  std::string_view parameter_open;   // before a parameter's name
  std::string_view key_end;          // after it; its first byte cannot be in the name
  std::string_view string_mark;      // may follow: before true" or false", whether it is a text
  std::string_view value_open;       // then, behind white space; empty: the value itself
  std::string_view parameter_close;  // after the value
  std::string_view function_close;
  // Line breaks beside the tags are part of a value.
  bool exact_values = false;
};
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

// The function_open tag was taken already. Values have the types that the tool's schema
// says.
ReplyTask<bool> ReadTaggedCall(ReplyIo& io, const TagSyntax& syntax, const ParameterTypes& types);
// Its parameters and the function_close tag: what stands behind the name of `function`.
ReplyTask<bool> ReadTaggedParameters(ReplyIo& io, CallWriter& call, const TagSyntax& syntax,
                                     const ParameterTypes& types, std::string_view function);

}  // namespace weft

#endif  // WEFT_REPLY_CALL_SYNTAX_H_
