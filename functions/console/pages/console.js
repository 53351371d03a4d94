// Says what is wrong when a fragment does not come, so that old figures are not taken for
// new ones.
'use strict'
{
	const say = (text) => {
		const trouble = document.getElementById('trouble')
		trouble.textContent = text
		trouble.hidden = !text
	}
	addEventListener('htmx:beforeSwap', ({ detail }) => {
		if (detail.xhr.status >= 500) {
			detail.shouldSwap = false // what is there asks again
			return say('The server failed; what is shown may be old.')
		}
		if (detail.xhr.getResponseHeader('Content-Type')?.startsWith('text/html')) return say('')
		detail.shouldSwap = false // the gateway answers scripts in JSON
		let problem
		try { problem = JSON.parse(detail.xhr.responseText) } catch { /* some proxy's */ }
		say(problem?.detail ?? `The answer is ${detail.xhr.status}.`)
	})
	for (const event of ['htmx:sendError', 'htmx:timeout']) addEventListener(event, () => say('The server does not answer; what is shown may be old.'))
}
