package engine

const (
	// MemberCommonName begins the common name of a member's certificate; the instance's name follows.
	MemberCommonName = "plimsoll-member:"
	// ManagerCommonName is the common name of the manager's certificate.
	ManagerCommonName = "plimsoll-manager"
)
