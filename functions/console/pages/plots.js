// The plots of the last hours, from the samples that the console keeps.
'use strict'
{
	const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim()
	const plots = [
		{ title: 'Changes and notifications a second', series: [['changes', 'changes', '--accent'], ['sent', 'sent', '--wait']] },
		{ title: 'From event to delivery, ms', series: [['sent_p50_ms', 'p50', '--accent'], ['sent_p99_ms', 'p99', '--wait']] },
		{ title: 'Longest wait in an outbox, ms', series: [['lag_ms', 'lag', '--accent']] },
		{ title: 'Players who wait', series: [['waiting', 'players', '--accent']] },
		{ title: 'Time to match, ms', series: [['match_ms', 'time', '--accent']] },
		{ title: 'Transfers a second', series: [['transfers', 'transfers', '--accent']] },
	]
	const utc = (at, from, to) => new Date(at * 1000).toISOString().slice(from, to)
	const home = document.getElementById('plots')
	const shownMinutes = 180
	let drawn = []
	let shown = [] // samples, oldest first
	let fetched = 0 // when; afterwards only later ones are

	// A gap in the samples is a gap in the line.
	function columns(samples, names) {
		const rows = [[], ...names.map(() => [])]
		let last = 0
		for (const sample of samples) {
			const at = Date.parse(sample.at) / 1000
			if (last && at - last > 30) {
				rows[0].push(last + 10)
				names.forEach((_, i) => rows[i + 1].push(null))
			}
			rows[0].push(at)
			names.forEach((name, i) => rows[i + 1].push(sample[name]))
			last = at
		}
		return rows
	}

	function draw(samples) {
		plots.forEach((plot, n) => {
			const data = columns(samples, plot.series.map(([name]) => name))
			if (drawn[n]) {
				drawn[n].setData(data)
				return
			}
			const figure = document.createElement('figure')
			figure.style.margin = '0'
			const title = document.createElement('h3')
			title.textContent = plot.title
			figure.append(title)
			home.append(figure)
			const axis = { stroke: colour('--quiet'), grid: { stroke: colour('--line') }, ticks: { stroke: colour('--line') } }
			drawn[n] = new uPlot({
				width: figure.clientWidth - 26, height: 180,
				tzDate: (at) => uPlot.tzDate(new Date(at * 1000), 'Etc/UTC'), // as everything here
				series: [{ label: 'UTC', value: (_, at) => at === null ? '--' : utc(at, 0, 19).replace('T', ' ') }, ...plot.series.map(([, label, stroke]) => ({ label, stroke: colour(stroke), width: 2 }))],
				axes: [{ ...axis, size: 30, values: (_, at) => at.map((one) => utc(one, 11, 16)) }, { ...axis, size: 56 }],
				scales: { y: { range: (_, low, high) => [0, Math.max(high, 1)] } },
			}, data, figure)
		})
	}

	async function refresh() {
		try {
			const minutes = Math.min(Math.ceil((Date.now() - fetched) / 60000) + 1, shownMinutes)
			const answer = await fetch(`/v1/operations/samples?minutes=${minutes}`, { credentials: 'same-origin' })
			if (!answer.ok) return
			fetched = Date.now()
			const last = Date.parse(shown.at(-1)?.at) || 0
			const added = (await answer.json()).samples.filter(({ at }) => Date.parse(at) > last)
			draw(shown = [...shown, ...added].slice(-shownMinutes * 6))
		} catch { /* the next one may arrive */ }
	}
	addEventListener('resize', () => drawn.forEach((plot) => plot.setSize({ width: plot.root.parentElement.clientWidth - 26, height: 180 })))
	matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { // a canvas keeps its colours
		home.replaceChildren()
		drawn = []
		draw(shown)
	})
	refresh()
	setInterval(refresh, 10000)
}
