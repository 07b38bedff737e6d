/**
 * The patterns of the writing guide (docs/writing.md). A rule has a regular expression, the reason, and the scope: prose of pages and
 * comments, or code. Code spans and links are removed from prose first.
 */

export interface StyleRule {
  readonly name: string;
  readonly pattern: RegExp;
  /** What to write instead. */
  readonly reason: string;
  /** Default: prose. `statement` is prose without headings. */
  readonly scope?: 'prose' | 'statement' | 'code';
}

export const STYLE_RULES: readonly StyleRule[] = [
  {
    name: 'relative-clause',
    pattern: /(?:^|[.!:;] +)(?:What|Who|Whoever|Whom|Whose|Whatever|Whichever|Which)\b(?![^.!]*\?)/g,
    reason: 'name the component or the thing instead of a clause with what, who or which',
    scope: 'statement',
  },
  {
    name: 'nameless-person',
    pattern: /\b(?:nobody|somebody|anybody|whoever|whomever|whom)\b/gi,
    reason: 'name the client, caller, viewer, recorder or reconciler',
  },
  {
    name: 'passive-speech',
    pattern:
      /\b(?:is|are|was|were|be|been|being) (?:told|said|asked|heard|believed|looked (?:at|for)|waited for|taken (?:for|in|along)|seen to|looked after|gone by)\b/gi,
    reason: 'use the active voice: log, report, return, check, wait',
  },
  {
    name: 'negated-noun',
    pattern: /\b(?:that|which) (?:is|are|has|have) (?:no|none)\b(?! longer)|(?<!there )\bis none\b/gi,
    reason: 'use a positive adjective: binary output, an invalid upload',
  },
  {
    name: 'fragment',
    pattern: /^(?:For|Of|At|By|With|From|To|In|On) (?:which|what|whom|those|that)\b/gm,
    reason: 'begin with a noun or a verb in the third person',
  },
  {
    name: 'calque',
    pattern:
      /\bso many\b(?! that)|\bsome hundred\b|\bsome \d|\bit were\b|\bmid-session\b|\bhangs? on\b|\b(?:take|takes|took|taken) (?:\w+ )?for (?:an?|the|one)\b|\bby itself\b|\b(?:lies?|lay) (?:in|below|under|beside)\b|\bput together\b|\bas ever\b|\bfor ever\b|\balone\b|\b(?:is|are) to be\b|\bof (?:ours|theirs)\b|\bas (?:it|they) (?:is|are|was|were|came)\b|\bstands? (?:in|next|before|between|behind|there)\b/gi,
    reason: 'write plain English: that many, about, depends on, treat as, automatically, is stored in, only',
  },
  { name: 'go-on', pattern: /\b(?:go|goes|went|going|gone) on\b/gi, reason: 'continue' },
  { name: 'mend', pattern: /\bmend(?:s|ed|ing)?\b/gi, reason: 'fix' },
  { name: 'beside', pattern: /\bbesides?\b/gi, reason: 'next to, in addition to, alongside' },
  {
    name: 'hold-against',
    pattern: /\b(?:hold|holds|held|holding)\b[^.]{0,40}\bagainst\b/gi,
    reason: 'compare with, match against',
  },
  { name: 'room', pattern: /\b(?:rooms?|floors?)\b/gi, reason: 'layer, module; space, capacity' },
  { name: 'road', pattern: /\b(?:roads?|way to a shell)\b/gi, reason: 'path, route' },
  { name: 'kept-connection', pattern: /\bkept connections?\b/gi, reason: 'keep-alive connection' },
  { name: 'cast-line', pattern: /\b(?:cast lines?|lines? of the recording)\b/gi, reason: 'asciicast event' },
  {
    name: 'authority',
    pattern: /(?<![:-])\bauthorit(?:y|ies)\b(?!-)/gi,
    reason: 'CA',
  },
  { name: 'header-field', pattern: /\b(?:header|HTTP) fields?\b/gi, reason: 'header' },
  {
    name: 'json-member',
    pattern: /\bmembers? of (?:the )?(?:JSON|object|document)\b|\bJSON members?\b/gi,
    reason: 'field',
  },
  {
    name: 'answer',
    pattern: /\b(?:an|the|its|each|every|no|any) answers?\b/gi,
    reason: 'response',
  },
  { name: 'the-system', pattern: /\bthe system\b(?! (?:call|trust))/gi, reason: 'the OS, the kernel' },
  { name: 'whole', pattern: /\b(?:is|are|be|was|were) whole\b|\bas a whole\b/gi, reason: 'complete, intact' },
  {
    name: 'process-ends',
    pattern: /\b(?:process|program|role) (?:ends|ended|begins|began)\b/gi,
    reason: 'exits, stops, starts',
  },
  {
    name: 'identifier',
    pattern:
      /\b(?:const|let|function|readonly|get|async) #?(?:told|tell|tells|asks|wants|helps|beyond|pressed|stirs|heard)\b/g,
    reason: 'use a noun for a value and a verb of the field for a function',
    scope: 'code',
  },
];

/** Maximum length of a row of a markdown table, in characters. */
export const MAX_TABLE_ROW = 200;
/** Maximum length of a cell of a markdown table, in words. */
export const MAX_CELL_WORDS = 12;
/** Maximum length of a source line, in characters. */
export const MAX_SOURCE_LINE = 120;
