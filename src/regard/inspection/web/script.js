// Direction and order of tokens of all scripts.

const RTL = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

function direction(words) {
  let right = 0, left = 0;
  for (const letter of words.join("")) {
    if (RTL.test(letter)) right++;
    else if (/\p{L}/u.test(letter)) left++;
  }
  return right > left ? "rtl" : "ltr";
}

// A run of digits or of left-to-right letters reads from left to right in a right-to-left line too, a sign between two
// digits with it (12:30, 17/8). Single characters and the sub-words of one word touch; words do not.
function runsOf(words, touch) {
  const kinds = words.map((word) => (/^\p{Nd}+$/u.test(word) ? "digits" : /\p{L}/u.test(word) && !RTL.test(word) ? "letters" : ""));
  const sign = (k) => touch(k) && touch(k + 1) && /^[.,:/\u060c]$/.test(words[k + 1]) && kinds[k] === "digits" && kinds[k + 2] === "digits";
  const found = [];
  for (let first = 0, last; first < words.length; first = last + 1) {
    last = first;
    while (kinds[last] && ((touch(last) && kinds[last + 1]) || sign(last))) last += kinds[last + 1] ? 1 : 2;
    found.push({ first, last });
  }
  return found;
}
