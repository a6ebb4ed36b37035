// The messages that events carry: an envelope is `{msg_type, message: {sender, recipient or recipients, subject,
// body, …}}`.

/** Return the envelope of the message that an event is about, or null. */
export const envelopeOf = (event) => event?.data.extra_data?.full_message ?? null;

/** Return the text of a `tool_call` that is none: a model has written it instead of calling a tool. Null for calls. */
export const writtenText = (event) =>
  event.data.extra_data?.tool_name === "text_output" ? (event.data.extra_data.tool_args?.content ?? "") : null;

/** Whether an address is that of a person. */
export const isPerson = ({ address_type }) => address_type === "user" || address_type === "admin";

export const isFromPerson = ({ message }) => isPerson(message.sender);

/** Return to whom a message goes, each as `{address, address_type}`. */
export const recipientsOf = ({ message }) => message.recipients ?? [message.recipient];

/** Return the names of a message's recipients. */
export const recipientNames = (envelope) => recipientsOf(envelope).map(({ address }) => address);
