package system

// Paths that tests request most.
const (
	GrantsPath      = "/v1/entitlements/grants"
	RevokesPath     = "/v1/entitlements/revokes"
	EventsPath      = "/v1/events"
	MePath          = "/v1/me"
	InboxPath       = "/v1/me/notifications"
	StreamPath      = "/v1/me/notifications/stream"
	OverviewPath    = "/v1/me/overview"
	TicketListPath  = "/v1/matchmaking/tickets"
	BackChannelPath = "/logout/backchannel"
)

const (
	// LogoutEvent is the event that makes a token a logout token.
	LogoutEvent = "http://schemas.openid.net/event/backchannel-logout"
	formType    = "Content-Type: application/x-www-form-urlencoded"
)
